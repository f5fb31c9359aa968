/**
 * The name server's connections, to machines that do not read what they asked for, and the names that it
 * resolves for guests.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { until } from "../../../test/support/until.ts";
import { makeLog } from "../log.ts";
import { blockOf, NAME_SERVER_PORT } from "./addresses.ts";
import { RESPONSE_CODES } from "./dns-message.ts";
import { MachineNameServer } from "./name-server.ts";
import { NAME_PERIODS, TrackedNames } from "./names.ts";
import { policyOf } from "./policy.ts";
import { framed } from "./upstream.ts";

/** Address of the loopback network; no other process has the same. */
const ADDRESS = `127.8.${(process.pid >> 8) % 256}.${process.pid % 256}`;
const STREAMS = 16;
/** Their answers fit into no buffer. */
const QUERIES = 200;
const ANSWER = Buffer.alloc(60_000);

/** The question for the addresses of a name with these labels. */
const query = (labels: readonly string[] = ["a"]): Buffer => {
  const header = Buffer.alloc(12);
  header.writeUInt16BE(1, 4);
  const name = labels.map((label) => String.fromCharCode(label.length) + label).join("");
  return framed(Buffer.concat([header, Buffer.from(`${name}\0\0\u0001\0\u0001`, "latin1")]));
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
  const clock = { ...systemClock, sleep: () => Promise.resolve() };
  await using server = new MachineNameServer({ block, upstream, clock, clientAt: () => client, idleMs: 1500 });
  await server.listen();
  const queries = Buffer.concat(Array.from({ length: QUERIES }, () => query()));
  const silent = await Promise.all(Array.from({ length: STREAMS }, opened));
  t.after(() => silent.forEach((socket) => socket.destroy()));
  for (const socket of silent) socket.pause().write(queries);
  assert.equal(await isAnswered(), false, "the machine has as many as it may");
  await until(isAnswered, { what: "a connection to be served" });
});

test("queries over a machine's connections wait for their turn, of which there are 20 at once and 20 a second", async (t) => {
  const client = {
    policy: { mode: "open", networks: [], hosts: [] },
    names: null,
    onRefused: () => undefined,
  } as const;
  const upstream = {
    forward: () => Promise.resolve(Buffer.alloc(12)),
    resolve: () => Promise.reject(new Error("not asked for")),
  };
  const waits: number[] = [];
  const sleep = (ms: number): Promise<void> => Promise.resolve(void waits.push(ms));
  const block = { ...blockOf(0), nameServer: ADDRESS };
  const clock = { ...systemClock, monotonic: () => 0, sleep };
  await using server = new MachineNameServer({ block, upstream, clock, clientAt: () => client });
  await server.listen();
  const sockets = [await opened(), await opened()];
  t.after(() => sockets.forEach((socket) => socket.destroy()));
  for (const socket of sockets) {
    let bytes = 0;
    socket.on("data", (part: Buffer) => (bytes += part.length));
    socket.write(Buffer.concat(Array.from({ length: 15 }, () => query())));
    await until(() => bytes === 15 * 14, { what: "its answers" });
  }
  assert.deepEqual(waits, [50, 100, 150, 200, 250, 300, 350, 400, 450, 500]);
});

test("a guest cannot have a name resolved that its machine may not reach, by a zero byte in it", async () => {
  const policy = policyOf({ mode: "allowCidrs", cidrs: [], hosts: ["*.sub.test"] });
  const resolved: string[] = [];
  const allowed: string[] = [];
  const upstream = {
    forward: () => Promise.reject(new Error("not asked for")),
    resolve: (name: string) => {
      // As resolvers written in C do.
      resolved.push(name.split("\0", 1)[0] ?? "");
      return Promise.resolve({ addresses: ["192.0.2.1"], ttlSeconds: 60 });
    },
  };
  const allow = (addresses: readonly string[]): Promise<void> => {
    allowed.push(...addresses);
    return Promise.resolve();
  };
  const options = {
    hosts: policy.hosts,
    upstream,
    allow,
    clock: systemClock,
    log: makeLog({ level: "silent", clock: systemClock }),
    periods: NAME_PERIODS,
  };
  const names = new TrackedNames(options);
  const client = { policy, names, onRefused: () => undefined };
  const block = { ...blockOf(0), nameServer: ADDRESS };
  await using server = new MachineNameServer({ block, upstream, clock: systemClock, clientAt: () => client });
  await server.listen();
  const socket = await opened();
  socket.write(query(["evil", "test\0", "sub", "test"]));
  const [answer] = (await once(socket, "data")) as [Buffer];
  socket.destroy();
  assert.deepEqual({ resolved, allowed }, { resolved: [], allowed: [] });
  assert.equal(answer.readUInt16BE(4) & 0xf, RESPONSE_CODES.refused);
});
