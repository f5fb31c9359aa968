/**
 * The node's reports to a scripted server: registration, coalescing, and recovery after failures.
 */
import assert from "node:assert/strict";
import { readFile, stat } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { HEARTBEAT_PERIOD_MS, type Heartbeat, type ObservedMachine } from "@flotilla/contract/link/link";
import { absentMachine } from "@flotilla/contract/link/absent";
import { portToReturnTo } from "../../test/support/flotilla.ts";
import { until } from "../../test/support/until.ts";
import { Outbox } from "../src/link/outbox.ts";
import { Reporter, type ReporterOptions } from "../src/link/report.ts";
import { makeLog } from "../src/log.ts";
import { RunJournal } from "../src/machines/run-journal.ts";
import { machineIdOf, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");

interface Call {
  readonly path: string;
  readonly token: string;
  readonly body: Heartbeat & { readonly address?: string };
}

/** A server that records every call and answers as scripted. */
async function listen(answer: (call: Call, count: number) => { status: number; body?: unknown }) {
  const calls: Call[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    request.on("end", () => {
      const token = (request.headers.authorization ?? "").replace("Bearer ", "");
      const call = { path: request.url ?? "", token, body: JSON.parse(text) as Call["body"] };
      calls.push(call);
      const { status, body } = answer(call, calls.length);
      response.writeHead(status).end(JSON.stringify(body ?? {}));
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  const close = (): void => {
    server.closeAllConnections();
    server.close();
  };
  return { calls, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

const observed = (machineId: string): ObservedMachine => ({
  ...absentMachine(machineId, 1),
  state: "running",
  bootId: "boot-1",
  runningSince: 1,
  readySince: 1,
});

async function report(
  serverUrl: string,
  nodeDirectory: string,
  joinToken: string | null = "join_1",
  more: Partial<Pick<ReporterOptions, "listImages" | "log" | "observeAll" | "clock">> = {},
) {
  const stop = new AbortController();
  const resources = {
    totalCpus: 2,
    totalMemoryMb: 10,
    availableMemoryMb: 5,
    totalDiskGb: 3,
    availableDiskGb: 2,
    usedCpus: 0,
    usedMemoryMb: 5,
    usedDiskGb: 1,
    pressure: null,
  };
  const outbox = new Outbox(systemClock);
  const log = makeLog({ level: "silent", clock: systemClock });
  const path = join(nodeDirectory, "runs.journal");
  const runs = await RunJournal.open({ path, clock: systemClock, log, onChange: () => outbox.wake() });
  const reporter = new Reporter({
    outbox,
    runs,
    serverUrl,
    serverSocket: null,
    joinToken,
    nodeDirectory,
    address: "unix:/x/link.sock",
    facts: {
      nodeId: "n1",
      driver: "fake",
      accelerator: "none",
      acceleratorReason: "",
      runtime: "r",
      arch: "amd64",
      memoryFormat: "f",
    },
    listImages: () => Promise.resolve([]),
    observeResources: () => Promise.resolve(resources),
    observe: observed,
    observeAll: () => [observed(A), observed(B)],
    clock: systemClock,
    log,
    ...more,
  });
  const done = reporter.run(stop.signal);
  const end = async (): Promise<void> => {
    stop.abort(new Error("the test ends"));
    await done;
    await runs.saved();
  };
  return { outbox, runs, end };
}

const isHeartbeat = ({ path }: Call): boolean => path === "/v1/nodes/n1/heartbeat";
const accept = ({ path }: Call) =>
  path.endsWith("register") ? { status: 200, body: { credential: "secret" } } : { status: 200 };

test("a node registers with its join token, stores its credential privately and first reports everything", async () => {
  await using directory = await temporaryDirectory();
  const server = await listen(accept);
  const { outbox, end } = await report(server.url, directory.path);
  await until(() => server.calls.length >= 2, { what: "a first report" });
  outbox.change(A);
  outbox.change(A);
  outbox.event(A, { type: "machine.paused", data: { reason: "something" } });
  await until(() => server.calls.length >= 3, { what: "a report of the change", deadlineMs: 2_000 });
  await end();
  server.close();
  const [entering, first, second] = server.calls;
  assert.deepEqual(
    [entering?.path, entering?.token, entering?.body.address],
    ["/v1/nodes/register", "join_1", "unix:/x/link.sock"],
  );
  assert.deepEqual([first?.token, first?.body.isComplete, first?.body.machines.length], ["secret", true, 2]);
  assert.deepEqual([second?.body.isComplete, second?.body.machines.map(({ machineId }) => machineId)], [false, [A]]);
  assert.deepEqual(
    second?.body.events.map(({ sequence, type, data }) => [sequence, type, data]),
    [[1, "machine.paused", { reason: "something" }]],
  );
  const credential = join(directory.path, "credential");
  assert.equal(await readFile(credential, "utf8"), "secret");
  assert.equal((await stat(credential)).mode & 0o777, 0o600);
});

test("a restarted node uses its credential, and its join token if the credential is no longer valid", async () => {
  await using directory = await temporaryDirectory();
  let isRevoked = false;
  const server = await listen((call) => (isRevoked && call.token === "secret" ? { status: 401 } : accept(call)));
  const first = await report(server.url, directory.path);
  await until(() => server.calls.some(isHeartbeat), { what: "a report" });
  await first.end();
  const second = await report(server.url, directory.path);
  await until(() => server.calls.filter(isHeartbeat).length >= 2, { what: "a report of the second" });
  assert.equal(server.calls.at(-2)?.token, "secret");
  isRevoked = true;
  const before = server.calls.length;
  second.outbox.change(A);
  await until(() => server.calls.slice(before).some(({ token }) => token === "join_1"), { what: "the join token" });
  await second.end();
  server.close();
});

test("a refusal is logged as the server's sentence, and an answer of something else as it is", async () => {
  await using directory = await temporaryDirectory();
  const error = "node n1 cannot register: the join token is used up; create another one";
  const server = await listen((_call, count) => ({
    status: count % 2 === 1 ? 401 : 502,
    body: count % 2 === 1 ? { code: "unknown_key", error } : ["a proxy"],
  }));
  const reasons: unknown[] = [];
  const write = (line: string): void => void reasons.push((JSON.parse(line) as { reason?: unknown }).reason);
  const log = makeLog({ level: "warn", clock: systemClock, write });
  const { end } = await report(server.url, directory.path, "join_1", { log });
  await until(() => reasons.length >= 2, { what: "two refusals" });
  await end();
  server.close();
  const refused = "POST /v1/nodes/register was refused with";
  assert.deepEqual(reasons.slice(0, 2), [`${refused} 401: ${error}`, `${refused} 502: ["a proxy"]`]);
});

test("a node that cannot join says so again after half a minute, on a terminal as a sentence with what to do", async () => {
  await using directory = await temporaryDirectory();
  const server = await listen(() => ({ status: 401, body: { code: "unknown_key", error: "unknown API key" } }));
  let aheadMs = 0;
  const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
  const lines: string[] = [];
  const log = makeLog({ level: "warn", clock, isForPeople: true, write: (line) => void lines.push(line) });
  const { end } = await report(server.url, directory.path, "join_1", { log, clock });
  await until(() => server.calls.length >= 3, { what: "three attempts" });
  assert.equal(lines.length, 1, "not with every attempt");
  aheadMs = 30_000;
  await until(() => lines.length >= 2, { what: "the same again", deadlineMs: 10_000 });
  await end();
  server.close();
  const [first = "", second = ""] = lines.map((line) => line.slice(9));
  assert.match(
    first,
    /^warn: this node has not joined yet; trying again: POST .* refused with 401: unknown API key; the join token is unknown, .*`flotilla token create` as FLOTILLA_JOIN_TOKEN\n$/,
  );
  assert.equal(second, first);
});

test("after a failure everything is reported again, and events keep their numbers and are not lost", async () => {
  await using directory = await temporaryDirectory();
  let failures = 0;
  const server = await listen((call, count) => {
    if (isHeartbeat(call) && count >= 3 && failures < 2) {
      failures += 1;
      return { status: 503 };
    }
    return accept(call);
  });
  const { outbox, end } = await report(server.url, directory.path);
  await until(() => server.calls.some(isHeartbeat), { what: "a first report" });
  outbox.event(B, { type: "machine.workloadEnded", data: {} });
  await until(() => failures === 2 && server.calls.length >= 5, { what: "the report after two failures" });
  await end();
  server.close();
  const last = server.calls.at(-1)?.body;
  assert.deepEqual([last?.isComplete, last?.machines.length], [true, 2]);
  assert.deepEqual(
    last?.events.map(({ sequence }) => sequence),
    [1],
  );
});

test("a large report may take as long as a slow line needs for it", async () => {
  await using directory = await temporaryDirectory();
  /** Timers of deadlines, in milliseconds. */
  const timers = new Map<() => void, number>();
  const clock: Clock = {
    ...systemClock,
    timer: (ms, callback) => {
      timers.set(callback, ms);
      return { cancel: () => void timers.delete(callback) };
    },
  };
  const pass = (ms: number): void => {
    for (const [callback, left] of timers) if (left <= ms) callback();
  };
  const server = await listen((call) => {
    if (isHeartbeat(call) && call.body.isComplete) pass(20_000);
    return accept(call);
  });
  const many = Array.from({ length: 2_000 }, () => observed(A));
  const { outbox, end } = await report(server.url, directory.path, "join_1", { observeAll: () => many, clock });
  await until(() => server.calls.some(isHeartbeat), { what: "a first report" });
  outbox.event(B, { type: "machine.workloadEnded", data: {} });
  await until(() => server.calls.filter(isHeartbeat).length > 1, { what: "the next report" });
  await end();
  server.close();
  const reports = server.calls.filter(isHeartbeat).map(({ body }) => [body.isComplete, body.machines.length]);
  assert.deepEqual(reports.slice(0, 2), [
    [true, 2_000],
    [false, 0],
  ]);
});

test("a node retries until the server is up", async () => {
  await using directory = await temporaryDirectory();
  const port = await portToReturnTo();
  const { end } = await report(`http://127.0.0.1:${port}`, directory.path);
  const calls: string[] = [];
  const late = createServer((request, response) => {
    calls.push(request.url ?? "");
    request.resume().on("end", () => response.end(JSON.stringify({ credential: "secret" })));
  });
  late.listen(port, "127.0.0.1");
  await until(() => calls.includes("/v1/nodes/n1/heartbeat"), { what: "a report to the late server" });
  await end();
  late.closeAllConnections();
  late.close();
});

test("a run is reported until the server has acknowledged it, also while a server acknowledges none", async () => {
  await using directory = await temporaryDirectory();
  let acknowledges = false;
  const server = await listen((call) => {
    const acknowledgedRuns = call.body.runs?.runs.at(-1)?.sequence ?? 0;
    return acknowledges && isHeartbeat(call) ? { status: 200, body: { acknowledgedRuns } } : accept(call);
  });
  const startedAt = systemClock.monotonic();
  const { outbox, runs, end } = await report(server.url, directory.path);
  await until(() => server.calls.some(isHeartbeat), { what: "a first report" });
  runs.open({ bootId: "boot-1", machineId: A, startedAt: 1 });
  await runs.close("boot-1", { endedAt: 2, cause: "stop" });
  const reports = () => server.calls.filter(isHeartbeat).map(({ body }) => body.runs);
  const reported = () => reports().filter((report) => report?.runs.some((run) => run.endedAt === 2)).length;
  await until(() => reported() >= 1, { what: "a report of the run" });
  acknowledges = true;
  outbox.change(A);
  await until(() => reported() === 2 && runs.isEmpty, { what: "the same run again" });
  outbox.change(A);
  await until(() => reports().at(-1)?.runs.length === 0, { what: "a report without it" });
  const periods = Math.floor((systemClock.monotonic() - startedAt) / HEARTBEAT_PERIOD_MS);
  await end();
  server.close();
  // A server that acknowledges nothing is not asked again at once.
  assert.ok(server.calls.length <= 6 + periods, `${server.calls.length} calls in ${periods} periods`);
  assert.deepEqual(reports()[0], { sequence: 0, isComplete: true, runs: [] });
});

test("images that come one after another are listed for a small part of the time, and the last one is reported soon", async () => {
  await using directory = await temporaryDirectory();
  const image = { digest: "d", sizeBytes: 1, architecture: "amd64", os: "linux", layerCount: 1 };
  const names: string[] = [];
  const listings: { readonly from: number; readonly to: number }[] = [];
  const listImages = async () => {
    const from = systemClock.monotonic();
    while (systemClock.monotonic() - from < 70);
    listings.push({ from, to: systemClock.monotonic() });
    return names.map((reference) => ({ ...image, reference, exposedPort: null, lastUsedAt: 1, tenantId: null }));
  };
  const server = await listen((call) => {
    if (isHeartbeat(call) && listings.length < 3) {
      // Two that come one after the other.
      for (let count = 0; count < 2; count += 1) {
        names.push(`image-${names.length}`);
        outbox.changeImages();
      }
    }
    return accept(call);
  });
  const { outbox, end } = await report(server.url, directory.path, undefined, { listImages });
  const reported = () => server.calls.flatMap(({ body }) => body.images?.held ?? []).map(({ reference }) => reference);
  await until(() => listings.length >= 3 && reported().length === names.length, { what: "all images to be reported" });
  await end();
  server.close();
  assert.deepEqual(reported(), names);
  const periods = Math.floor((systemClock.monotonic() - (listings[0]?.from ?? 0)) / HEARTBEAT_PERIOD_MS);
  const reports = server.calls.filter(isHeartbeat).length;
  assert.ok(reports <= listings.length + periods, `${reports} reports of ${listings.length} lists`);
  for (const [at, { from }] of listings.entries()) {
    const before = listings[at - 1];
    if (before !== undefined) assert.ok(from - before.to >= 15 * (before.to - before.from), JSON.stringify(listings));
  }
});
