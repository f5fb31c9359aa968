/**
 * Machines whose guest hangs, with the fake driver: what is reported, what ends, and when they are restarted.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { RESTARTS_MAX } from "@flotilla/contract/limits";
import type { LinkError } from "@flotilla/contract/link/link";
import { hurriedClock, machineIdOf, startTestNode, temporaryDirectory, type TestNode } from "./support/in-process.ts";

const A = machineIdOf("a");
/** Minutes take a second. A host that is busy may look at a guest much later than it should. */
const SPEED = 100;
const HOUR_S = 3_600;

const REQUEST = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false };

function run(node: TestNode, ...argv: string[]): void {
  const exec = node.fleet.find(A)?.access.guest?.exec({ argv, ...REQUEST });
  exec?.exit.catch(() => undefined);
}

const messages = ({ events }: TestNode): readonly string[] => events.map(({ message }) => message);
const SILENT = "the machine's agent does not answer, and its commands were ended; after minutes it counts as crashed";

/** A machine that runs, and hangs for so many seconds. */
async function hanging(
  directory: string,
  seconds: number,
  spec = {},
): Promise<{ node: TestNode; bootId: string | null }> {
  const node = await startTestNode(directory, { clock: hurriedClock(SPEED) });
  const { bootId } = await node.want(A, 1, "running", { spec });
  run(node, "hang", String(seconds));
  return { node, bootId };
}

const silence = (node: TestNode): Promise<number> =>
  until(() => node.fleet.observe(A).unresponsiveSince, { what: "the silence to be reported" });

test("a guest that hangs is reported, what waits for it ends with the reason, and it says when it answers again", async () => {
  await using directory = await temporaryDirectory();
  const { node, bootId } = await hanging(directory.path, 170);
  const ended = Promise.withResolvers<LinkError>();
  node.fleet.find(A)?.access.onSilent(ended.resolve);
  assert.deepEqual([node.fleet.observe(A).unresponsiveSince, node.fleet.find(A)?.access.obstacle], [null, null]);
  await silence(node);
  assert.deepEqual(await ended.promise, node.fleet.find(A)?.access.obstacle);
  assert.match(JSON.stringify(await ended.promise), /guest_unreachable.*has not answered since .*a start restarts/);
  assert.deepEqual(messages(node), [SILENT]);
  assert.equal(node.fleet.observe(A).state, "running");
  await until(() => node.fleet.observe(A).unresponsiveSince === null, { what: "its answer" });
  assert.equal(node.fleet.find(A)?.access.obstacle, null, "it takes commands again");
  assert.match(messages(node).at(-1) ?? "", /^the machine's agent answers again: it did not for \d+ s$/);
  assert.deepEqual([node.events.length, node.fleet.observe(A).bootId], [2, bootId]);
});

test("a machine whose guest hangs for minutes is ended and restarted, and its run has the cause", async () => {
  await using directory = await temporaryDirectory();
  const { node, bootId } = await hanging(directory.path, HOUR_S);
  const isNew = () => node.fleet.observe(A).bootId !== bootId && node.fleet.observe(A).state === "running";
  await until(isNew, { what: "another boot" });
  const [first, second] = messages(node);
  assert.equal(first, SILENT);
  assert.match(second ?? "", /^the machine's agent has not answered for \d+ s; the machine is restarted$/);
  const { lastRun, unresponsiveSince } = node.fleet.observe(A);
  assert.deepEqual([lastRun?.bootId, lastRun?.cause, unresponsiveSince], [bootId, "unresponsive", null]);
});

test("a machine that hangs after each restart is left in error with the reason", async () => {
  await using directory = await temporaryDirectory();
  const { node } = await hanging(directory.path, HOUR_S);
  for (let count = 0; count < RESTARTS_MAX; count += 1) {
    const { bootId } = node.fleet.observe(A);
    const isNew = () => node.fleet.observe(A).bootId !== bootId && node.fleet.observe(A).state === "running";
    await until(isNew, { what: "another boot" });
    run(node, "hang", String(HOUR_S));
  }
  await until(() => node.fleet.observe(A).state === "failed", { what: "its failure" });
  const { reason } = node.fleet.observe(A);
  assert.match(reason ?? "", /has not answered for \d+ s; it was restarted 5 times within 10 minutes of work/);
});

test("a machine that is not to be restarted ends in error with the reason", async () => {
  await using directory = await temporaryDirectory();
  const { node } = await hanging(directory.path, HOUR_S, { restart: "never" });
  await until(() => node.fleet.observe(A).state === "failed", { what: "its failure" });
  assert.match(node.fleet.observe(A).reason ?? "", /^the machine's agent has not answered for \d+ s$/);
});

test("a start of a machine whose guest hangs restarts it at once", async () => {
  await using directory = await temporaryDirectory();
  const { node, bootId } = await hanging(directory.path, HOUR_S);
  await silence(node);
  const restarted = await node.want(A, 2, "running");
  assert.deepEqual(
    [restarted.state, restarted.unresponsiveSince, restarted.lastRun?.bootId],
    ["running", null, bootId],
  );
  assert.notEqual(restarted.bootId, bootId);
  assert.deepEqual(messages(node).slice(1), [
    "the machine did not shut down cleanly and was ended: its agent does not answer",
  ]);
});

test("a start of a machine whose guest answers does not restart it", async () => {
  await using directory = await temporaryDirectory();
  const { node, bootId } = await hanging(directory.path, 0);
  assert.equal((await node.want(A, 2, "running")).bootId, bootId);
});

test("a guest whose VMM has paused it for a full disk does not count as silent, and has all its time afterwards", async () => {
  await using directory = await temporaryDirectory();
  const { node, bootId } = await hanging(directory.path, 400);
  run(node, "full-disk", "380");
  await until(() => node.events.length >= 2, { what: "the end of the pause", deadlineMs: 20_000 });
  assert.deepEqual([node.fleet.observe(A).bootId, node.fleet.observe(A).unresponsiveSince], [bootId, null]);
  assert.ok(
    messages(node).every((message) => /paused/.test(message)),
    messages(node).join("\n"),
  );
});

test("a machine that cannot be suspended because its guest hangs runs on, with its memory", async () => {
  await using directory = await temporaryDirectory();
  const { node, bootId } = await hanging(directory.path, HOUR_S, { env: { FAKE_SUSPEND_FAIL: "conflict" } });
  await silence(node);
  const refused = await node.want(A, 2, "stopped", { keepsMemory: true });
  assert.deepEqual([refused.state, refused.suspendRefusal?.code], ["running", "conflict"]);
  // The server requests that after a refusal.
  const running = await node.want(A, 3, "running");
  assert.deepEqual([running.state, running.bootId], ["running", bootId]);
  assert.deepEqual(messages(node), [SILENT]);
});

test("a machine that is stopped while its guest hangs stops, and nothing is said about its agent any more", async () => {
  await using directory = await temporaryDirectory();
  const { node } = await hanging(directory.path, HOUR_S);
  await silence(node);
  const stopped = await node.want(A, 2, "stopped");
  assert.deepEqual([stopped.state, stopped.unresponsiveSince], ["stopped", null]);
  assert.deepEqual(messages(node).length, 2, messages(node).join("\n"));
});
