/**
 * Where servers connect to a node that listens for them.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import type { Log } from "@flotilla/base/log";
import { portToReturnTo } from "../../test/support/flotilla.ts";
import { until } from "../../test/support/until.ts";
import { listenForServers } from "../src/link/link-listener.ts";
import { Membership } from "../src/link/membership.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const silent = (): void => undefined;
const log: Log = { debug: silent, info: silent, warn: silent, error: silent, child: () => log };

test("connections of an address that proceed with no handshake give way to new ones of that address", async (t) => {
  await using directory = await temporaryDirectory();
  const token = `join_${"0".repeat(12)}_${"x".repeat(43)}${"a".repeat(64)}`;
  const membership = await Membership.open(directory.path, "node-1", token);
  assert.ok(membership !== null);
  const listen = { host: "127.0.0.1", port: await portToReturnTo() };
  const listener = await listenForServers({ listen, membership, serve: silent, log });
  t.after(() => listener.close());
  const open = new Set<Socket>();
  for (let count = 0; count < 300; count += 1) {
    const socket = connect(listen);
    socket.on("error", silent);
    await once(socket, "connect");
    open.add(socket);
    socket.once("close", () => open.delete(socket));
    socket.resume();
  }
  await until(() => open.size === 32, { what: "the oldest connections to give way" });
  // The node has not joined, so it has no certificate, which it says.
  const [error] = (await once(connectTls({ ...listen, rejectUnauthorized: false }), "error")) as [Error];
  assert.match(error.message, /alert/);
  for (const socket of open) socket.destroy();
});
