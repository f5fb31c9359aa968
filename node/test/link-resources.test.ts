/**
 * What servers that hang or are faulty leave behind in a node agent: memory, descriptors, files, commands.
 *
 * Every route of the link is called with bodies that are slow, too long, endless or abandoned, and each that
 * lasts is held open, not read, and abandoned. The list is the link's: a new route is called without a change
 * here, except that HOLDS must say whether it lasts.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import type { ExecStart } from "@flotilla/contract/link/link";
import { LINK_FILE_OPERATIONS } from "@flotilla/contract/link/file-parts";
import { LINK_ROUTES, type LinkRoute, type LinkRouteName } from "@flotilla/contract/link/routes";
import { encodeLinkFrame } from "@flotilla/contract/link/frames";
import { httpGuest, rawGuest } from "../../server/test/support/guest.ts";
import { fastClock } from "../../test/support/fast-clock.ts";
import { leavesNothing, MIB } from "../../test/support/leaves-nothing.ts";
import { callRudely, CHUNK, PIECE } from "../../test/support/rude-callers.ts";
import { until } from "../../test/support/until.ts";
import { head, type Wire, wire } from "../../test/support/wire.ts";
import { readBlocks } from "../src/images/blocks.ts";
import { diskPathOf } from "../src/machines/paths.ts";
import { machineIdOf, specOf } from "./support/in-process.ts";
import { startTestLink, type TestLink } from "./support/link.ts";

const A = machineIdOf("a");
/** Two minutes pass in 0.12 s. */
const SPEED = 1_000;
/** How often the rest of a body is looked at whose request was answered. */
const LEFTOVER_MS = 10_000;
const CALLERS_EACH = 3;
const UPLOAD_BYTES = 2 * MIB;
/** Images leave machines 5 % of it. */
const SMALL_MB = 64;
const PEAK_BYTES_MAX = 256 * MIB;
const routes = Object.entries(LINK_ROUTES) as [LinkRouteName, LinkRoute][];

/** Each path of the route with the given values of its parameters. */
function pathsOf({ path }: LinkRoute, values: Readonly<Record<string, readonly string[]>>): string[] {
  const [, name] = /\{([a-z]+)\}/.exec(path) ?? [];
  if (name === undefined) return [path];
  const known = values[name];
  assert.ok(known, `values for the parameter ${name} of ${path}`);
  return known.flatMap((value) => pathsOf({ method: "GET", path: path.replace(`{${name}}`, value) }, values));
}

/** Machine A runs, with these ports. */
async function runs(link: TestLink, ports: string): Promise<void> {
  // Its clock may be fast, so that one request does not wait for a boot, and a boot may be too slow for it.
  let generation = 1;
  const isRunning = async () => {
    const { state } = await link.node.want(A, generation, "running", { env: { FAKE_PORTS: ports } });
    if (state === "failed") generation += 1;
    return state === "running";
  };
  await until(isRunning, { what: "machine A to run" });
}

const skip = process.getuid?.() === 0 ? false : "only root may mount a small file system";

/** A directory on a file system with `freeMb`, so that an upload without end has one. */
async function smallDirectory(t: TestContext, freeMb: number): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "flotilla-small-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${SMALL_MB}m`, "tmpfs", path]);
  await mkdir(join(path, "temporary"));
  execFileSync("fallocate", ["-l", `${SMALL_MB - freeMb}m`, join(path, "filler")]);
  t.after(async () => {
    execFileSync("umount", [path]);
    await rm(path, { recursive: true });
  });
  return join(path, "temporary");
}

test("no route of the link lets a slow, huge, endless or vanished body keep a connection, memory or a file", {
  skip,
}, async (t) => {
  const closing = await rawGuest((socket) => void socket.end("bye"));
  const temporaryDirectory = await smallDirectory(t, 16);
  await using link = await startTestLink({ clock: fastClock(SPEED), temporaryDirectory });
  await runs(link, `80=${closing.port}`);
  const values = {
    id: [A, machineIdOf("b")],
    port: ["80", "81", "70000"],
    operation: [...LINK_FILE_OPERATIONS, "other"],
    file: ["disk", "other"],
    move: [`op-${"a".repeat(32)}`, "other"],
    point: [`point-${"a".repeat(32)}`, "other"],
  };
  const all = routes.flatMap(([name, route]) =>
    pathsOf(route, values).map((path) => ({
      what: `${name} (${path})`,
      url: `unix:${link.socketPath}`,
      method: route.method,
      path: `${path}?reference=local/rude`,
      key: null,
    })),
  );
  await leavesNothing({ all, warmUp: all, pids: [], peakBytesMax: PEAK_BYTES_MAX }, callRudely);
  assert.deepEqual(await readdir(link.temporaryDirectory), []);
});

interface Hold {
  readonly path: string;
  /** What it sends first: a message, or its beginning. */
  readonly first: Buffer | string;
  /** Its body continues until the node reads no more. */
  readonly isUpload?: boolean;
  /** Nothing is answered before the end of the work. */
  readonly isSilent?: boolean;
}

const START: ExecStart = {
  argv: ["yes"],
  cwd: null,
  env: {},
  user: null,
  timeoutMs: null,
  isBackground: false,
  hasStdin: false,
  terminal: null,
};
const PULL = '{"reference":"example.com/slow-3600000","arch":null,"tenantId":null}';
const desired = {
  generation: 1,
  state: "running",
  spec: specOf(machineIdOf("c"), { env: { FAKE_BOOT_MS: "3600000" } }),
};

/** How each route that lasts is held open. null: it does not last. */
const HOLDS: Readonly<Record<LinkRouteName, Hold | null>> = {
  exec: { path: `/v1/machines/${A}/exec`, first: encodeLinkFrame("start", JSON.stringify(START)) },
  dial: { path: `/v1/machines/${A}/dial/80`, first: "\0GET / HTTP/1.1\r\nhost: x\r\n\r\n" },
  connect: {
    path: `/v1/machines/${A}/connections`,
    first: encodeLinkFrame("start", JSON.stringify({ port: 80, resumeKey: "0".repeat(32) })),
  },
  terminal: {
    path: `/v1/machines/${A}/terminals`,
    first: encodeLinkFrame(
      "start",
      JSON.stringify({ ...START, terminal: { cols: 80, rows: 24 }, resumeKey: "0".repeat(32) }),
    ),
  },
  file: { path: `/v1/machines/${A}/files/write`, first: '{"path":"/workspace/a","sha256":null}\n', isUpload: true },
  putMachine: {
    path: `/v1/machines/${desired.spec.machineId}?waitMs=600000`,
    first: JSON.stringify(desired),
    isSilent: true,
  },
  readLogs: { path: `/v1/machines/${A}/logs?follow=1`, first: "" },
  // It would replace the VMM of machine A.
  replaceVmm: null,
  // The host would go down.
  suspendAll: null,
  resumeAll: null,
  // It runs a program and answers.
  restartAgent: null,
  listImages: null,
  pullImage: { path: "/v1/images", first: PULL, isSilent: true },
  importImage: { path: "/v1/images/import?reference=local/half", first: "half", isUpload: true },
  removeImage: null,
  describeOutgoing: null,
  releaseOutgoing: null,
  // Machine A runs, and no move was begun.
  sendFile: null,
  sendDiskRound: null,
  sendMemoryRounds: null,
  sendRest: null,
  beginIncoming: null,
  receiveFile: null,
  receiveDiskRound: null,
  receiveMemoryRounds: null,
  receiveRest: null,
  commitIncoming: null,
  discardIncoming: null,
  // Machine A runs.
  exportMachine: null,
  // A point is made to its end, also when its caller is gone.
  makePoint: null,
  readMemoryUse: null,
  releasePoint: null,
  // There is no such point.
  describePoint: null,
  sendPointFile: null,
  beginPoint: null,
  receivePointFile: null,
  commitPoint: null,
};

const chunked = (data: Buffer | string): Buffer =>
  Buffer.concat([Buffer.from(`${Buffer.byteLength(data).toString(16)}\r\n`), Buffer.from(data), Buffer.from("\r\n")]);

test("no request that is held open, not read or abandoned keeps memory, a descriptor, a file or a command", async () => {
  const guest = await httpGuest((_, response) => {
    const more = (): void => {
      while (!response.destroyed && response.write(PIECE));
    };
    response.on("drain", more);
    more();
  });
  await using link = await startTestLink();
  await runs(link, `80=${guest.port}`);
  const held = routes.flatMap(([name, { method }]) => {
    const how = HOLDS[name];
    return how === null ? [] : [{ name, method, ...how }];
  });
  type Held = (typeof held)[number];
  const hold = async ({ method, path, first, isUpload, name }: Held): Promise<Wire> => {
    const one = await wire(`unix:${link.socketPath}`);
    one.socket.pause();
    one.send(head(method, path, null, { "transfer-encoding": "chunked" }));
    if (first.length > 0) one.send(chunked(first));
    const staysOpen = isUpload === true || name === "dial" || name === "connect";
    if (!staysOpen) one.send("0\r\n\r\n");
    return one;
  };
  const rounds = { all: held, warmUp: held, pids: [], peakBytesMax: PEAK_BYTES_MAX };
  await leavesNothing(rounds, async (items, look) => {
    const open: { readonly item: Held; readonly one: Wire; sentBytes: number }[] = [];
    for (const item of items)
      for (let count = 0; count < CALLERS_EACH; count += 1) open.push({ item, one: await hold(item), sentBytes: 0 });
    const isHeld = ({ item, one, sentBytes }: (typeof open)[number]): boolean =>
      item.isUpload === true
        ? sentBytes > UPLOAD_BYTES || one.socket.writableNeedDrain
        : item.isSilent === true || one.socket.readableLength > 0;
    const areHeld = (): boolean => {
      for (const each of open) {
        if (each.item.isUpload !== true || isHeld(each)) continue;
        each.one.send(CHUNK);
        each.sentBytes += CHUNK.byteLength;
      }
      look();
      return open.every(isHeld);
    };
    await until(areHeld, { what: "all to be held" }).catch((error: unknown) => {
      const missing = open.filter((each) => !isHeld(each)).map(({ item }) => item.name);
      throw new Error(`not held: ${missing.join(", ")}`, { cause: error });
    });
    for (const { item, one } of open) {
      one.socket.read();
      if (one.received() !== "") assert.match(one.received(), /^HTTP\/1\.1 200 /, item.name);
      one.socket.destroy();
    }
    await until(async () => (await readdir(link.temporaryDirectory)).length === 0, { what: "no file to be left" });
  });
  await link.node.want(desired.spec.machineId, 2, "absent");
});

async function freeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}

/** The message of the last answer on a connection. */
const lastJson = ({ received }: Wire) => JSON.parse(received().slice(received().lastIndexOf("\r\n\r\n") + 4));

test("a body that ends after its answer does not break the requests that follow on its connection", async () => {
  await using link = await startTestLink({ clock: fastClock(SPEED) });
  await runs(link, "");
  const one = await wire(`unix:${link.socketPath}`);
  const answers = (count: number) =>
    until(() => one.received().split("HTTP/1.1 ").length > count, { what: `answer ${count}` });
  one.send(head("GET", `/v1/machines/${A}/outgoing`, null));
  await answers(1);
  const { image, root, files } = lastJson(one);
  const body = JSON.stringify({ generation: 1, image, root, files, memory: null, memoryBase: null });
  const incoming = `/v1/machines/${machineIdOf("b")}/incoming/op-${"a".repeat(32)}`;
  one.send(head("PUT", incoming, null, { "content-length": `${body.length}` }) + body);
  await answers(2);
  one.send(head("POST", `${incoming}/files/disk?from=0`, null, { "transfer-encoding": "chunked" }));
  for await (const chunk of readBlocks(diskPathOf(link.node.fleet.find(A)?.known?.directory ?? ""), 0))
    one.send(chunked(chunk));
  await until(() => one.received().includes('"kind":"done"'), { what: "the file to arrive" });
  one.send("0\r\n\r\n");
  // It lasts for longer than the end of a body may take.
  const start = encodeLinkFrame("start", JSON.stringify({ ...START, argv: ["sleep", "60"] }));
  const exec = head("POST", `/v1/machines/${A}/exec`, null, { "content-length": `${start.byteLength}` });
  one.send(Buffer.concat([Buffer.from(exec), start]));
  await until(() => one.received().includes('"exitCode":0') || one.isClosed(), { what: "the end of the command" });
  assert.match(one.received(), /"exitCode":0/, "the connection was closed");
});

test("a server that reads an answer slowly is waited for, although the body of its request has no end yet", async () => {
  const looks = new Set<() => void>();
  const clock: Clock = {
    ...systemClock,
    timer: (ms, callback) => {
      if (ms !== LEFTOVER_MS) return systemClock.timer(ms, callback);
      looks.add(callback);
      return { cancel: () => void looks.delete(callback) };
    },
  };
  await using link = await startTestLink({ clock });
  await runs(link, "");
  const one = await wire(`unix:${link.socketPath}`);
  one.send(head("POST", `/v1/machines/${A}/exec`, null, { "transfer-encoding": "chunked" }));
  one.send(chunked(encodeLinkFrame("start", JSON.stringify({ ...START, argv: ["true"], hasStdin: true }))));
  await until(() => one.received().includes('"exitCode":0'), { what: "the end of the command" });
  for (let count = 0; count < 3; count += 1) {
    one.send(chunked(encodeLinkFrame("stdin", "typed")));
    await until(() => looks.size > 0 || one.isClosed(), { what: "a look at the rest of the body" });
    for (const look of [...looks]) {
      looks.delete(look);
      look();
    }
  }
  one.send("0\r\n\r\n");
  one.send(head("GET", `/v1/machines/${A}/outgoing`, null));
  const isAnswered = (): boolean => one.received().split("HTTP/1.1 200").length > 2;
  await until(() => isAnswered() || one.isClosed(), { what: "the next answer" });
  assert.ok(isAnswered(), "the connection was closed");
});

test("an upload leaves machines the space that images leave them, and is answered", { skip }, async (t) => {
  const small = await smallDirectory(t, 16);
  await using link = await startTestLink({ temporaryDirectory: small });
  const one = await wire(`unix:${link.socketPath}`);
  one.send(head("POST", "/v1/images/import?reference=local/large", null, { "transfer-encoding": "chunked" }));
  let lowest = Number.POSITIVE_INFINITY;
  const isAnswered = async (): Promise<boolean> => {
    for (let count = 0; count < 4 && !one.socket.writableNeedDrain; count += 1) one.send(CHUNK);
    lowest = Math.min(lowest, await freeBytes(small));
    return one.received().includes('"kind":"failed"');
  };
  await until(isAnswered, { what: "the refusal", everyMs: 20 });
  assert.match(one.received(), /"reasonCode":"no_space"/);
  assert.ok(lowest > 0, "the file system was never full");
  await until(async () => (await readdir(small)).length === 0, { what: "the file to be removed" });
});
