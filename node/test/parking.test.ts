/**
 * Connections that are parked at a server which closes them, on a clock whose pauses end when the test says
 * so.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { createServer, type TLSSocket } from "node:tls";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { PARKED_PROTOCOL, PING } from "@flotilla/contract/link/fleet";
import { until } from "../../test/support/until.ts";
import { Membership } from "../src/link/membership.ts";
import { Parking } from "../src/link/parking.ts";
import { makeLog } from "../src/log.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const NODE = "node-1";
const PAUSE_MS_MAX = 3_000;
const REQUEST = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=fleet";

/** One certificate for the authority, the server and the node. */
function makeIdentity(directory: string) {
  const [keyPath, certPath] = [join(directory, "node.key"), join(directory, "cert.pem")];
  const name = ["-addext", "subjectAltName=URI:urn:flotilla:server", "-keyout", keyPath, "-out", certPath];
  execFileSync("openssl", [...REQUEST.split(" "), ...name], { stdio: "ignore" });
  return { key: readFileSync(keyPath, "utf8"), cert: readFileSync(certPath, "utf8") };
}

/** `pauses`: their lengths, and how each is ended. */
function handClock() {
  const pauses: { readonly ms: number; readonly end: () => void }[] = [];
  const timer: Clock["timer"] = (ms, end) => {
    if (ms > PAUSE_MS_MAX) return systemClock.timer(ms, end);
    pauses.push({ ms, end });
    return { cancel: () => undefined };
  };
  return { clock: { ...systemClock, timer }, pauses };
}

test("a server that closes connections at once is tried again later each time, and has all when it keeps one", async (t) => {
  await using directory = await temporaryDirectory();
  const { key, cert } = makeIdentity(directory.path);
  const opened: TLSSocket[] = [];
  const state = { keeps: false };
  const server = createServer({ key, cert, ca: [cert], requestCert: true, ALPNProtocols: [PARKED_PROTOCOL] });
  server.on("secureConnection", (socket) => {
    opened.push(socket);
    socket.on("error", () => undefined);
    if (!state.keeps) socket.destroy();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const listeners = [{ id: "server-1", addresses: [`127.0.0.1:${port}`] }];
  const stored = { nodeId: NODE, certificate: cert, authorities: [cert], listeners, ingresses: [] };
  await writeFile(join(directory.path, "membership.json"), JSON.stringify(stored));
  const membership = await Membership.open(directory.path, NODE, null);
  assert.ok(membership !== null);
  const { clock, pauses } = handClock();
  const log = makeLog({ level: "silent", clock });
  const parking = new Parking({ membership, serve: () => undefined, clock, log });
  t.after(() => {
    parking.close();
    for (const socket of opened) socket.destroy();
    server.close();
  });
  // Each of the four at the beginning may be the one that counts, until the pauses before have seen them all
  // closed.
  for (const [before, ms] of [200, 400, 800, 1_600, 3_000, 3_000].entries()) {
    pauses.at(-1)?.end();
    await until(() => pauses.length > before || opened.length > 50, { what: "a pause" });
    assert.equal(pauses.at(-1)?.ms, ms);
  }
  const refused = opened.length;
  assert.ok(refused <= 9, `${refused} connections were opened in six pauses`);
  state.keeps = true;
  pauses.at(-1)?.end();
  await until(() => opened.length === refused + 1, { what: "the next connection" });
  opened.at(-1)?.write(Buffer.from([PING]));
  await until(() => opened.length === refused + 4, { what: "all connections" });
  assert.equal(pauses.length, 6);
});
