/**
 * What callers that misbehave leave behind in a server. Every endpoint of the contract is called by a client that is slow,
 * one that sends too much, one that never ends, and one that disappears. Every endpoint whose body or answer lasts is held
 * open, not read, and abandoned. Memory and descriptors are measured before, at the peak and after.
 *
 * The list comes from the contract: an endpoint that lasts and has no entry in HOLDS fails the test.
 *
 * A first round compiles code and fills pools; the second is compared with what was there after it.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { type EndpointName, endpointList } from "@flotilla/contract/endpoints";
import { PENDING_ENDPOINTS } from "@flotilla/contract/pending";
import { ALL_BODY_BYTES_MAX } from "../src/http/bounds.ts";
import { until } from "../../test/support/until.ts";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { createMachine } from "./support/machine-server.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { samplePath } from "./support/sample.ts";
import { startTestServer, type TestServer } from "./support/server.ts";
import { fastClock, head, type Wire, wire } from "./support/wire.ts";

const MIB = 1024 * 1024;
const PIECE = Buffer.alloc(64 * 1024, 0x20);
const CHUNK = Buffer.concat([Buffer.from("10000\r\n"), PIECE, Buffer.from("\r\n")]);
/** Of those that are held open. */
const CALLERS_EACH = 3;
const UPLOAD_BYTES = 2 * MIB;
/** So many equal numbers in a row, 50 ms apart. */
const SETTLED_LOOKS = 8;
const DEADLINE_MS = 60_000;
/** Minutes pass in less than a second. */
const SPEED = 300;
/** A pool of connections to the database or to nodes may have grown. Fewer than the callers of one endpoint. */
const DESCRIPTORS_SLACK = 2;
const MEMORY_SLACK_BYTES = 24 * MIB;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

function memoryBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const descriptorsOf = async (pid: number | "self"): Promise<number> => (await readdir(`/proc/${pid}/fd`)).length;

/** The descriptors of each process, once their number no longer changes. */
async function settled(pids: readonly (number | "self")[]): Promise<readonly number[]> {
  let [last, same]: [readonly number[], number] = [[], 0];
  const isSettled = async (): Promise<boolean> => {
    const now = await Promise.all(pids.map(descriptorsOf));
    same = now.join() === last.join() ? same + 1 : 0;
    last = now;
    return same >= SETTLED_LOOKS;
  };
  await until(isSettled, { what: "descriptors that do not change", deadlineMs: DEADLINE_MS, everyMs: 50 });
  return last;
}

type Listed = readonly [EndpointName, Endpoint];

/** Opens connections to the endpoints and waits for their end; resolves with the most memory that was used, in bytes. */
type Round = (endpoints: readonly Listed[]) => Promise<number>;

/** After the second round, the processes have as many descriptors and as much memory as after the first. */
async function leavesNothing(
  {
    all,
    warmUp,
    pids,
  }: { readonly all: readonly Listed[]; readonly warmUp: readonly Listed[]; pids: readonly number[] },
  round: Round,
): Promise<void> {
  const watched = ["self" as const, ...pids];
  await round(warmUp);
  const descriptors = await settled(watched);
  collectGarbage();
  const before = memoryBytes();
  const peakBytes = await round(all);
  assert.ok(peakBytes - before < ALL_BODY_BYTES_MAX, `${Math.round((peakBytes - before) / MIB)} MiB at the peak`);
  for (const [index, pid] of watched.entries()) {
    const allowed = (descriptors[index] ?? 0) + DESCRIPTORS_SLACK;
    const areFree = async () => (await descriptorsOf(pid)) <= allowed;
    await until(areFree, { what: `at most ${allowed} descriptors of process ${pid}`, deadlineMs: DEADLINE_MS });
  }
  const isFree = (): boolean => {
    collectGarbage();
    return memoryBytes() - before < MEMORY_SLACK_BYTES;
  };
  await until(isFree, { what: "the memory to be released", deadlineMs: DEADLINE_MS, everyMs: 100 });
}

/** A plan whose rate would refuse most of these calls before they reach their endpoint. */
async function liftRates({ client }: TestServer): Promise<void> {
  const rate = 1_000_000;
  const plan = { name: "any rate", isDefault: true, rateRequestsPerSecond: rate, rateBurst: rate };
  assert.equal((await client.post("/v1/plans", plan)).status, 201);
}

interface Caller {
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What it sends first. */
  readonly first: string;
  /** What it sends again and again, as fast as the server reads. */
  readonly more: Buffer | null;
}

const CALLERS: readonly Caller[] = [
  { name: "slow", headers: { "content-length": "500000" }, first: "{", more: null },
  { name: "huge", headers: { "content-length": String(2 ** 40) }, first: "{", more: PIECE },
  { name: "endless", headers: { "transfer-encoding": "chunked" }, first: "1\r\n{\r\n", more: CHUNK },
];

const HALF_SENT: Omit<Caller, "name"> = { headers: { "content-length": "500000" }, first: "{", more: null };

test("no endpoint lets a slow, huge, endless or vanished body keep a connection or memory", async () => {
  const server = await startTestServer({ clock: fastClock(SPEED), joinToken: TEST_JOIN_TOKEN });
  await liftRates(server);
  const machineId = await createMachine(server.client);
  const registered = await server.client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id: "node-a", address: "unix:/none" });
  const keyOf = ({ access }: Endpoint): string =>
    access === "joinToken"
      ? TEST_JOIN_TOKEN
      : access === "nodeCredential"
        ? registered.json.credential
        : server.adminKey.key;

  const aFew = endpointList.filter((_, index) => index % 5 === 0);
  const begin = async (endpoint: Endpoint, { headers, first }: Omit<Caller, "name">): Promise<Wire> => {
    const one = await wire(server.url, { isDeaf: true });
    const path = samplePath(endpoint.path, endpoint.path.startsWith("/v1/machines/") ? machineId : "node-a");
    one.send(head(endpoint.method, path, keyOf(endpoint), { ...headers, "content-type": "application/json" }));
    one.send(first);
    return one;
  };
  await leavesNothing({ all: endpointList, warmUp: aFew, pids: [] }, async (endpoints) => {
    let peakBytes = 0;
    const open: { readonly what: string; readonly one: Wire; readonly more: Buffer | null }[] = [];
    for (const [name, endpoint] of endpoints) {
      const vanishing = await begin(endpoint, HALF_SENT);
      for (const caller of CALLERS)
        open.push({
          what: `${name} by a ${caller.name} client`,
          one: await begin(endpoint, caller),
          more: caller.more,
        });
      vanishing.socket.destroy();
    }
    const left = (): string[] => open.filter(({ one }) => !one.isClosed()).map(({ what }) => what);
    const areCut = (): boolean => {
      for (const { one, more } of open)
        if (more !== null && !one.isClosed() && !one.socket.writableNeedDrain) one.send(more);
      peakBytes = Math.max(peakBytes, memoryBytes());
      return left().length === 0;
    };
    const wait = { what: "every connection to be closed", deadlineMs: DEADLINE_MS, everyMs: 50 };
    await until(areCut, wait).catch((error: unknown) => {
      throw new Error(`still open: ${left().join(", ")}`, { cause: error });
    });
    for (const { what, one } of open) {
      const answer = one.received();
      if (answer !== "") assert.match(answer, /^HTTP\/1\.1 (?!500)[2-5]\d\d /, what);
    }
    return peakBytes;
  });
});

interface Hold {
  /** The path after `/v1/machines/{id}`, or all of it. */
  readonly path: string;
  readonly json?: object;
  readonly headers?: Readonly<Record<string, string>>;
}

const UPGRADE = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};
const upload = (path: string): Hold => ({ path, headers: { "transfer-encoding": "chunked" } });
const bridge: Hold = { path: "/connect/80/endless" };
const OUTPUT = { command: "yes" };

/** How each endpoint that lasts is held open. null: its answer is short. */
const HOLDS: Partial<Record<EndpointName, Hold | null>> = {
  getMetrics: null,
  listMachineLogs: { path: "/logs?follow=true" },
  exec: { path: "/exec", json: { ...OUTPUT, stream: true } },
  execStream: { path: "/exec/stream", json: OUTPUT },
  execInSession: { path: "/sessions/{session}/exec", json: { ...OUTPUT, stream: true } },
  openTerminal: { path: "/exec/interactive?cmd=yes", headers: UPGRADE },
  readFile: { path: "/files?path=/workspace/large" },
  readFileAt: { path: "/files/workspace/large" },
  writeFile: upload("/files?path=/workspace/up"),
  putFileAt: upload("/files/workspace/up"),
  postFileAt: upload("/files/workspace/up"),
  connectGet: bridge,
  connectHead: null,
  connectOptions: bridge,
  connectDelete: bridge,
  connectPost: upload(bridge.path),
  connectPut: upload(bridge.path),
  connectPatch: upload(bridge.path),
  importImage: upload("/v1/images/import?reference=local/none"),
};

function lasts({ answers, body, isUpgrade }: Endpoint): boolean {
  const streams = Object.values(answers).some(
    (answer) => answer.kind === "stream" || ("orStream" in answer && answer.orStream !== undefined),
  );
  return streams || body?.kind === "bytes" || isUpgrade === true;
}

test("no connection that is held open, not read or abandoned keeps memory or descriptors of server or node", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  await liftRates(server);
  const node = await startTestNode(server);
  const guest = await httpGuest((_, response) => {
    const more = (): void => {
      while (!response.destroyed && response.write(PIECE));
    };
    response.on("drain", more);
    more();
  });
  const { client, adminKey } = server;
  const id = await machineWithPorts(client, { 80: guest.port });
  const large = new Uint8Array(24 * MIB);
  await client.post(`/v1/machines/${id}/files?path=/workspace/large`, undefined, { raw: large });
  const sessions: string[] = [];
  const hold = async (endpoint: Endpoint, { path, json, headers = {} }: Hold): Promise<Wire> => {
    // A session runs one command at a time.
    if (path.includes("{session}")) sessions.push((await client.post(`/v1/machines/${id}/sessions`)).json.id);
    const filled = path.replace("{session}", sessions.at(-1) ?? "");
    const one = await wire(server.url);
    one.socket.pause();
    const body = json === undefined ? "" : JSON.stringify(json);
    const length: Record<string, string> = json === undefined ? {} : { "content-length": String(body.length) };
    const whole = filled.startsWith("/v1/") ? filled : `/v1/machines/${id}${filled}`;
    one.send(head(endpoint.method, whole, adminKey.key, { ...headers, ...length }) + body);
    return one;
  };
  const isPending = (name: EndpointName): boolean => (PENDING_ENDPOINTS as readonly EndpointName[]).includes(name);
  const held = endpointList.filter(([name, endpoint]) => lasts(endpoint) && !isPending(name));
  assert.deepEqual(held.map(([name]) => name).toSorted(), Object.keys(HOLDS).toSorted(), "HOLDS has each that lasts");

  await leavesNothing({ all: held, warmUp: held, pids: [node.pid()] }, async (endpoints) => {
    let peakBytes = 0;
    const open: { readonly name: string; readonly one: Wire; readonly isUpload: boolean; sentBytes: number }[] = [];
    for (const [name, endpoint] of endpoints) {
      const how = HOLDS[name];
      if (how === null || how === undefined) continue;
      for (let count = 0; count < CALLERS_EACH; count += 1) {
        const one = await hold(endpoint, how);
        open.push({ name, one, isUpload: how.headers !== undefined && how.headers !== UPGRADE, sentBytes: 0 });
      }
    }
    // Each has received the beginning of its answer, or sent much of its body.
    const isHeld = ({ one, isUpload, sentBytes }: (typeof open)[number]): boolean =>
      isUpload
        ? sentBytes > UPLOAD_BYTES || one.socket.writableNeedDrain
        : one.socket.readableLength > 0 || one.isClosed();
    const areHeld = (): boolean => {
      for (const each of open) {
        const { socket } = each.one;
        if (!each.isUpload || socket.destroyed || socket.writableNeedDrain || each.sentBytes > UPLOAD_BYTES) continue;
        each.one.send(CHUNK);
        each.sentBytes += CHUNK.byteLength;
      }
      peakBytes = Math.max(peakBytes, memoryBytes());
      return open.every(isHeld);
    };
    await until(areHeld, { what: "all to be held", deadlineMs: DEADLINE_MS, everyMs: 25 }).catch((error: unknown) => {
      const missing = open.filter((each) => !isHeld(each)).map(({ name }) => name);
      throw new Error(`not held: ${missing.join(", ")}`, { cause: error });
    });
    for (const { one } of open) one.socket.destroy();
    for (const session of sessions.splice(0)) await client.delete(`/v1/machines/${id}/sessions/${session}`);
    return peakBytes;
  });
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "echo alive" })).json.stdout, "alive\n");
});
