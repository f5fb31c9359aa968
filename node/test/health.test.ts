/**
 * The health of machines on a node, with the fake driver: from the first success of their checks, across
 * pauses, silences, new VMMs, new agents and new boots.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import type { MachineHealth, MachineHealthCheck } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import {
  hurriedClock,
  machineIdOf,
  machineOf,
  startTestNode,
  type TestNode,
  temporaryDirectory,
} from "./support/in-process.ts";

const A = machineIdOf("a");
/** Minutes take a second. */
const SPEED = 200;
const HOUR_MS = 3_600_000;

const HTTP: MachineHealthCheck = {
  ...{ type: "http", path: "/healthz", port: 80, command: null, host: "web.example.com" },
  // An answer of this host may take as long as it likes.
  ...{ intervalMs: 100, timeoutMs: HOUR_MS, retries: 3 },
};
const TCP: MachineHealthCheck = { ...HTTP, type: "tcp", path: null, host: null };
const EXEC: MachineHealthCheck = { ...HTTP, type: "exec", path: null, port: null, command: ["cat", "/healthy"] };

const REQUEST = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false };

async function run(node: TestNode, ...argv: string[]): Promise<void> {
  const exec = node.fleet.find(A)?.access.guest?.exec({ argv, ...REQUEST });
  assert.ok(exec !== undefined, "the machine runs");
  for (const output of [exec.stdout, exec.stderr]) output.resume();
  assert.deepEqual(await exec.exit, { exitCode: 0 });
}

/** Begins a command that takes long. */
function begin(node: TestNode, ...argv: string[]): void {
  node.fleet
    .find(A)
    ?.access.guest?.exec({ argv, ...REQUEST })
    .exit.catch(() => undefined);
}

const health = (node: TestNode): MachineHealth | null => node.fleet.observe(A).health;

const becomes = (node: TestNode, status: MachineHealth["status"]): Promise<MachineHealth> =>
  until(
    () => {
      const seen = health(node);
      return seen?.status === status && seen;
    },
    { what: `the machine to be ${status}` },
  );

/** A web server on the host's loopback that a machine has as its port 80. */
async function guest(
  onRequest: () => number,
): Promise<{ readonly env: Record<string, string>; readonly server: Server }> {
  const server = createServer((_request, response) => {
    response.statusCode = onRequest();
    response.end("so it is");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { env: { FAKE_PORTS: `80=${(server.address() as AddressInfo).port}` }, server };
}

test("a machine without a check has no health, and one that does not run has none", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  assert.equal((await node.want(A, 1, "running", { env: { FAKE_LISTEN: "80=200" } })).health, null);
  await node.want(A, 2, "absent");
  await node.want(A, 3, "running", { spec: { health: TCP }, env: { FAKE_LISTEN: "80=200" } });
  await becomes(node, "healthy");
  assert.equal((await node.want(A, 4, "stopped")).health, null);
});

test("a machine is healthy soon after its port takes connections, not an interval later", async () => {
  for (const check of [TCP, HTTP]) {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    const env = { FAKE_LISTEN: "80=204", FAKE_LISTEN_AFTER_MS: "1000" };
    const started = await node.want(A, 1, "running", { spec: { health: { ...check, intervalMs: HOUR_MS } }, env });
    assert.deepEqual([started.state, started.health], ["running", { status: "unknown", since: null, reason: null }]);
    const { since, reason } = await becomes(node, "healthy");
    assert.equal(reason, null);
    assert.ok(since !== null && since >= (started.runningSince ?? 0));
  }
});

test("failures in a row make a machine unhealthy with the reason, one success ends that, and it runs on", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const { bootId } = await node.want(A, 1, "running", { spec: { health: HTTP }, env: { FAKE_LISTEN: "80=200" } });
  const first = await becomes(node, "healthy");
  await run(node, "listen", "80", "503");
  const unhealthy = await becomes(node, "unhealthy");
  assert.equal(unhealthy.reason, "GET /healthz was answered 503: test GET /healthz");
  assert.ok((unhealthy.since ?? 0) >= (first.since ?? 0));
  await run(node, "unlisten", "80");
  await until(() => health(node)?.reason === "nothing listens on port 80", { what: "the newer reason" });
  assert.equal(health(node)?.since, unhealthy.since);
  await run(node, "listen", "80", "301");
  await becomes(node, "healthy");
  assert.deepEqual([node.fleet.observe(A).bootId, node.events], [bootId, []]);
});

test("a machine that has never been healthy is unknown with the reason, and then unhealthy", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { spec: { health: { ...HTTP, retries: 2, intervalMs: 300 } } });
  const seen: string[] = [];
  const isUnhealthy = (): boolean => {
    const { status, reason } = health(node) ?? { status: "none", reason: null };
    seen.push(`${status} ${reason}`);
    return status === "unhealthy";
  };
  await until(isUnhealthy, { what: "the machine to be unhealthy", everyMs: 5 });
  assert.deepEqual(
    [...new Set(seen)],
    ["unknown null", "unknown nothing listens on port 80", "unhealthy nothing listens on port 80"],
  );
});

test("a command in the guest decides, by its exit code", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { spec: { health: EXEC } });
  const { reason } = await becomes(node, "unhealthy");
  assert.equal(reason, "the command ended with exit code 1: cat: /healthy: No such file or directory");
  await run(node, "sh", "-c", "echo yes > /healthy");
  await becomes(node, "healthy");
  await run(node, "rm", "-f", "/healthy");
  await becomes(node, "unhealthy");
});

test("a machine that its VMM has paused is not checked, and stays what it was", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(SPEED) });
  let status = 200;
  const counts = { paused: 0, running: 0 };
  const { env } = await guest(() => {
    counts[node.fleet.observe(A).pauseReason === null ? "running" : "paused"] += 1;
    return status;
  });
  await node.want(A, 1, "running", { spec: { health: { ...HTTP, intervalMs: 1_000 } }, env });
  const { since } = await becomes(node, "healthy");
  begin(node, "full-disk", "400");
  await until(() => node.fleet.observe(A).pauseReason !== null, { what: "the pause" });
  status = 503;
  const seen = new Set<string>();
  await until(
    () => {
      const { pauseReason } = node.fleet.observe(A);
      if (pauseReason !== null) seen.add(`${health(node)?.status} ${health(node)?.since}`);
      return pauseReason === null;
    },
    { what: "the end of the pause" },
  );
  assert.deepEqual([...seen], [`healthy ${since}`]);
  assert.ok(counts.paused <= 1, `${counts.paused} requests arrived in the pause, of which one was on its way`);
  await becomes(node, "unhealthy");
});

test("a machine whose agent does not answer is not checked until it answers again", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(SPEED) });
  let status = 200;
  const { env } = await guest(() => status);
  await node.want(A, 1, "running", { spec: { health: { ...HTTP, intervalMs: 1_000 } }, env });
  const { since } = await becomes(node, "healthy");
  begin(node, "hang", "160");
  await until(() => node.fleet.observe(A).unresponsiveSince, { what: "the silence" });
  status = 503;
  const seen = new Set<unknown>();
  await until(
    () => {
      const { unresponsiveSince } = node.fleet.observe(A);
      if (unresponsiveSince !== null) seen.add(health(node)?.since);
      return unresponsiveSince === null;
    },
    { what: "its answer" },
  );
  assert.deepEqual([...seen], [since]);
  await becomes(node, "unhealthy");
});

test("a machine that gets another VMM keeps its health, and is checked there", async () => {
  await using directory = await temporaryDirectory();
  const env = { FAKE_LISTEN: "80=200", FAKE_SUSPEND_MS: "20" };
  const first = await startTestNode(directory.path, { program: "1" });
  await first.want(A, 1, "running", { spec: { health: TCP }, env });
  await first.fleet.release();
  const node = await startTestNode(directory.path, { program: "2" });
  const before = await becomes(node, "healthy");
  const seen = new Set<string>();
  const done = node.replacements.replace(machineOf(node, A), "live", new AbortController().signal);
  const isDone = async (): Promise<boolean> => {
    seen.add(`${health(node)?.status} ${health(node)?.since}`);
    return (await Promise.race([done, Promise.resolve(false)])) !== false;
  };
  await until(isDone, { what: "the other VMM", everyMs: 1 });
  assert.equal((await done).outcome, "replaced");
  assert.deepEqual([...seen], [`healthy ${before.since}`]);
  await run(node, "unlisten", "80");
  await becomes(node, "unhealthy");
});

test("a new agent checks the machines that it adopts, and one that released them does not any more", async () => {
  await using directory = await temporaryDirectory();
  let requests = 0;
  const { env } = await guest(() => {
    requests += 1;
    return 200;
  });
  const first = await startTestNode(directory.path);
  const { bootId } = await first.want(A, 1, "running", { spec: { health: { ...HTTP, intervalMs: HOUR_MS } }, env });
  await becomes(first, "healthy");
  assert.equal(requests, 1);
  await first.fleet.release();
  const node = await startTestNode(directory.path);
  await becomes(node, "healthy");
  assert.deepEqual([node.fleet.observe(A).bootId, requests], [bootId, 2]);
});

test("a machine that continues from its memory has another boot, which begins without health", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const more = { spec: { health: TCP }, env: { FAKE_LISTEN: "80=200", FAKE_LISTEN_AFTER_MS: "1000" } };
  const { bootId } = await node.want(A, 1, "running", more);
  const first = await becomes(node, "healthy");
  assert.equal((await node.want(A, 2, "stopped", { ...more, keepsMemory: true })).health, null);
  const resumed = await node.want(A, 3, "running", more);
  assert.deepEqual([resumed.isResumed, resumed.health?.status], [true, "unknown"]);
  assert.notEqual(resumed.bootId, bootId);
  assert.ok(((await becomes(node, "healthy")).since ?? 0) >= (first.since ?? 0));
});
