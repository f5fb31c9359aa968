/**
 * What a node sends is bounded before it is parsed: reports over HTTP, and answers over the link.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { before, test, type TestContext } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { absentMachine } from "@flotilla/contract/link/absent";
import { CHANGES_BYTES_MAX, REPORT_BYTES_MAX } from "@flotilla/contract/link/reports";
import { RUNS_PER_COMPLETE_REPORT_MAX } from "@flotilla/contract/runs";
import { describeOutgoing } from "../src/link/moves.ts";
import { NodeLink } from "../src/link/node-link.ts";
import { NodeUnreachable } from "../src/link/refusals.ts";
import { createLog } from "../src/log.ts";
import type { Client } from "./support/client.ts";
import { MACHINE_ID } from "./support/machine.ts";
import { RESOURCES, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { loadAdjustedMs } from "../../node/src/host/load-adjusted-timeout.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;

const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
const idOf = (index: number): string => `mach-${index.toString(16).padStart(32, "0")}`;
const heartbeat = (fields: object = {}) => ({
  ...{ bootId: "agent-1", isComplete: false, resources: RESOURCES, machines: [], events: [] },
  ...fields,
});
const withMember = (json: string): string => `${JSON.stringify(heartbeat()).slice(0, -1)},"zz":${json}}`;

const nodes: Record<string, Client> = {};
const report = (id: string, raw: string) =>
  (nodes[id] as Client).post(`/v1/nodes/${id}/heartbeat`, undefined, {
    raw,
    headers: { "content-type": "application/json" },
  });

before(async () => {
  for (const id of ["wide", "deep", "hostile", "large", "often"]) {
    const body = { id, address: "unix:/nowhere/agent.sock" };
    const { json } = await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", body);
    nodes[id] = client.withKey(json.credential);
  }
});

test("a report of millions of values, or of many levels, is refused, and delays no other caller meanwhile", async () => {
  // One report of each node: a large one uses up its rate for a moment.
  const hostile = { deep: nested(4_000_000), wide: `[${"{},".repeat(2_600_000)}{}]` };
  for (const [id, json] of Object.entries(hostile)) {
    const isAnswered = { report: false };
    const reporting = report(id, withMember(json)).then((answer) => {
      isAnswered.report = true;
      return answer;
    });
    let slowestMs = 0;
    while (!isAnswered.report) {
      const askedAt = performance.now();
      assert.equal((await client.get("/v1/me")).status, 200);
      slowestMs = Math.max(slowestMs, performance.now() - askedAt);
    }
    const { status, text } = await reporting;
    assert.deepEqual([status, /levels deep|more than \d+ values/.test(text)], [422, true]);
    assert.ok(slowestMs < 2 * loadAdjustedMs(5_000), `another caller waited for ${slowestMs} ms`);
  }
  const small = await report("hostile", withMember(nested(100)));
  assert.deepEqual([small.status, small.text.includes("64 levels deep")], [422, true]);
  assert.equal((await report("hostile", withMember(nested(60)))).status, 200);
});

test("everything that a node with thousands of running machines has is accepted in one report", async () => {
  const running = {
    ...{ state: "running", bootId: `boot-${"a".repeat(32)}`, runningSince: 1e12, readySince: 1e12 },
    lastRun: { bootId: "b", startedAt: 1e12, endedAt: 1e12, cause: "stopped" },
    timings: { vm: "prepared", imageMs: 1.5, diskMs: 2.5, bootMs: 3.5, configureMs: 4.5, totalMs: 12.5 },
  };
  const machines = Array.from({ length: RUNS_PER_COMPLETE_REPORT_MAX }, (_, index) => ({
    ...absentMachine(idOf(index), 2),
    ...running,
  }));
  const runs = machines.map(({ machineId, bootId }, index) => ({
    ...{ sequence: index + 1, bootId: `${bootId}-${index}`, machineId, startedAt: 1e12 },
  }));
  const everything = { machines, runs: { sequence: runs.length, isComplete: true, runs } };
  const text = JSON.stringify(heartbeat({ ...everything, isComplete: true }));
  assert.ok(text.length > REPORT_BYTES_MAX * 0.8);
  const { status, json } = await report("large", text);
  assert.deepEqual([status, json.acknowledgedRuns], [200, runs.length]);
});

test("a large report is refused if it is not of everything, and the text says what to send", async () => {
  const machines = Array.from({ length: 4_000 }, (_, index) => absentMachine(idOf(index), 2));
  const changes = JSON.stringify(heartbeat({ machines }));
  assert.ok(changes.length > CHANGES_BYTES_MAX);
  const { status, text } = await report("large", changes);
  assert.deepEqual([status, text.includes("report everything")], [413, true]);
  assert.equal((await report("large", JSON.stringify(heartbeat({ machines, isComplete: true })))).status, 200);
});

test("a node that reports all the time is refused, and another one is not", async () => {
  const large = JSON.stringify(heartbeat({ isComplete: true, unread: "x".repeat(1024 * 1024) }));
  const refused = async () => {
    const answers = await Promise.all(Array.from({ length: 8 }, () => report("often", large)));
    return answers.find(({ status }) => status === 429);
  };
  const { text } = await until(refused, { deadlineMs: 60_000, what: "the first refusal" });
  assert.match(text, /node often calls too often/);
  assert.equal((await report("hostile", JSON.stringify(heartbeat()))).status, 200);
});

/** The link to a node that answers each request with this text. */
async function linkTo(t: TestContext, text: string) {
  const node = createServer((request, response) => void request.resume().on("end", () => response.end(text)));
  node.listen(0, "127.0.0.1");
  await once(node, "listening");
  const link = new NodeLink(createLog("silent"), systemClock);
  t.after(async () => {
    await link.close();
    node.closeAllConnections();
    node.close();
  });
  return { link, node: { nodeId: "a", address: `http://127.0.0.1:${(node.address() as AddressInfo).port}` } };
}

test("an answer of millions of values is that of a node that does not answer", async (t) => {
  const { link, node } = await linkTo(t, nested(4_000_000));
  const desired = { generation: 1, state: "absent", spec: null } as const;
  const { signal } = new AbortController();
  const asked = performance.now();
  const asking = [
    link.listImages(node, null, "asker"),
    link.putMachine(node, MACHINE_ID, desired, { waitMs: 0 }),
    describeOutgoing(link, node, { machineId: MACHINE_ID, signal }, { hasContent: false }),
  ];
  for (const answer of await Promise.allSettled(asking))
    assert.ok(answer.status === "rejected" && answer.reason instanceof NodeUnreachable, answer.status);
  assert.ok(performance.now() - asked < 2 * loadAdjustedMs(10_000));
});

test("an answer in which a small text has many levels is not parsed", async (t) => {
  const { link, node } = await linkTo(t, nested(100));
  const desired = { generation: 1, state: "absent", spec: null } as const;
  const failed = await link.putMachine(node, MACHINE_ID, desired, { waitMs: 0 }).catch((error: unknown) => error);
  assert.match(String(failed instanceof NodeUnreachable ? failed.reason : failed), /64 levels deep/);
});

test("a list of a thousand images is read", async (t) => {
  const image = { digest: "sha256:0", sizeBytes: 1, architecture: "amd64", os: "linux", layerCount: 1 };
  const images = Array.from({ length: 1_000 }, (_, index) => ({ reference: `local/image-${index}`, ...image }));
  const { link, node } = await linkTo(t, JSON.stringify(images));
  assert.deepEqual(
    (await link.listImages(node, null, "asker")).map(({ reference }) => reference).at(-1),
    "local/image-999",
  );
});
