/**
 * The name server's connections, to machines that do not read what they asked for.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { until } from "../../../test/support/until.ts";
import { blockOf, NAME_SERVER_PORT } from "./addresses.ts";
import { MachineNameServer } from "./name-server.ts";
import { framed } from "./upstream.ts";

/** Of the loopback network; no other process has the same. */
const ADDRESS = `127.8.${(process.pid >> 8) % 256}.${process.pid % 256}`;
const STREAMS = 16;
/** Their answers fit into no buffer. */
const QUERIES = 200;
const ANSWER = Buffer.alloc(60_000);

/** The question for the addresses of "a". */
const query = (): Buffer => {
  const bytes = Buffer.alloc(19);
  bytes.writeUInt16BE(1, 4);
  bytes.write("\u0001a\0\0\u0001\0\u0001", 12, "latin1");
  return framed(bytes);
};

async function opened(): Promise<Socket> {
  const socket = connect({ host: ADDRESS, port: NAME_SERVER_PORT });
  socket.on("error", () => undefined);
  await once(socket, "connect");
  return socket;
}

/** Whether a query on a new connection is answered. */
async function isAnswered(): Promise<boolean> {
  const socket = await opened();
  socket.write(query());
  const answered = Promise.withResolvers<boolean>();
  socket.once("data", () => answered.resolve(true)).once("close", () => answered.resolve(false));
  return await answered.promise.finally(() => socket.destroy());
}

test("a machine that does not read its answers has all its connections again after they were idle", async (t) => {
  const client = {
    policy: { mode: "open", networks: [], hosts: [] },
    names: null,
    onRefused: () => undefined,
  } as const;
  const upstream = {
    forward: () => Promise.resolve(ANSWER),
    resolve: () => Promise.reject(new Error("not asked for")),
  };
  const block = { ...blockOf(0), nameServer: ADDRESS };
  await using server = new MachineNameServer({ block, upstream, clientAt: () => client, idleMs: 200 });
  await server.listen();
  const queries = Buffer.concat(Array.from({ length: QUERIES }, query));
  const silent = await Promise.all(Array.from({ length: STREAMS }, opened));
  t.after(() => silent.forEach((socket) => socket.destroy()));
  for (const socket of silent) socket.pause().write(queries);
  assert.equal(await isAnswered(), false, "the machine has as many as it may");
  await until(isAnswered, { what: "a connection to be served" });
});
