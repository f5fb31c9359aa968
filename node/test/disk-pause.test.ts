/**
 * Machines whose VMM pauses them because the host's disk is full, with the fake driver: what is reported, and
 * how often.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { readVmFile, writeVmFile } from "../src/driver/fake/vm-file.ts";
import { bootDirectoryName } from "../src/machines/paths.ts";
import { hurriedClock, machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
/** The 30 s after which a machine counts as resumed take 300 ms. */
const SPEED = 100;
/** More than these. */
const SETTLED_MS = 600;
const HOUR_MS = 3_600_000;

const pause = (ms: number): Promise<void> => hurriedClock(1).sleep(ms);

function run(node: TestNode, script: string): Promise<unknown> {
  const guest = node.fleet.find(A)?.access.guest;
  const options = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false };
  const exec = guest?.exec({ argv: ["sh", "-c", script], ...options });
  exec?.stdout.resume();
  exec?.stderr.resume();
  return exec?.exit ?? Promise.reject(new Error("the machine does not run"));
}

const eventsOf = ({ events }: TestNode): readonly string[] =>
  events.map(({ level, message }) => `${level} ${message.replace(/\d+ s/, "N s")}`);

const PAUSED =
  "warn the machine is paused: its host's disk is full or failing; it continues by itself when the host has free disk space";
const CONTINUES = "info the machine continues: it was paused for N s, and its host's disk is written again";

test("a machine that a full disk pauses says so while it is paused, and says when it continues", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(SPEED) });
  assert.equal((await node.want(A, 1, "running")).pauseReason, null);
  const full = run(node, "full-disk 20");
  await until(() => node.fleet.observe(A).pauseReason !== null, { what: "the pause to be observed" });
  assert.match(node.fleet.find(A)?.access.obstacle?.message ?? "", /^its host's disk is full/);
  assert.deepEqual(eventsOf(node), [PAUSED]);
  await full;
  assert.equal(node.fleet.find(A)?.access.obstacle, null, "it takes commands again");
  assert.equal(node.fleet.observe(A).pauseReason, null, "it is shown as long as it lasts");
  assert.deepEqual(eventsOf(node), [PAUSED], "it may be paused again in a moment");
  await until(() => node.events.length === 2, { what: "the event of the end" });
  assert.deepEqual(eventsOf(node), [PAUSED, CONTINUES]);
});

test("pauses that follow each other within seconds are one on the timeline", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(SPEED) });
  await node.want(A, 1, "running");
  await run(node, "full-disk 1; sleep 3; full-disk 1; sleep 3; full-disk 1; sleep 3; full-disk 1");
  assert.deepEqual(eventsOf(node), [PAUSED]);
  await until(() => node.events.length === 2, { what: "the event of the end" });
  assert.deepEqual(eventsOf(node), [PAUSED, CONTINUES]);
});

test("a paused machine that is stopped does not continue on its timeline", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(SPEED) });
  await node.want(A, 1, "running");
  void run(node, "full-disk 1000").catch(() => undefined);
  await until(() => node.events.length === 1, { what: "the pause" });
  assert.equal((await node.want(A, 2, "stopped")).pauseReason, null);
  await pause(SETTLED_MS);
  assert.deepEqual(eventsOf(node), [PAUSED]);
});

for (const desired of ["running", "stopped"] as const)
  test(`a machine that is paused while its agent restarts, and is to be ${desired}, ${desired === "running" ? "runs on" : "ends"}`, async () => {
    await using directory = await temporaryDirectory();
    const clock = hurriedClock(SPEED);
    const before = await startTestNode(directory.path, { clock });
    const { bootId } = await before.want(A, 1, "running");
    await before.fleet.release();
    const boot = join(directory.path, "machines", A, "boots", bootDirectoryName(bootId ?? ""));
    const file = await readVmFile(boot);
    assert.ok(file !== undefined);
    await writeVmFile(boot, { ...file, outOfSpaceUntil: clock.now() + HOUR_MS });
    const node = await startTestNode(directory.path, { clock });
    await node.want(A, 2, desired, { waitMs: 0 });
    if (desired === "running") {
      // Three attempts without an answer are the end of a machine that is not paused.
      const failed = (): number => node.logLines.filter((line) => line.includes("the guest is paused")).length;
      await until(() => failed() > 3, { what: "attempts to adopt it" });
      await writeVmFile(boot, file);
    }
    const seen = await until(() => node.fleet.observe(A).state === desired && node.fleet.observe(A), { what: desired });
    if (desired === "running") {
      assert.equal(seen.bootId, bootId);
      await until(() => node.events.length === 2, { what: "the event of the end" });
      assert.deepEqual(eventsOf(node), [PAUSED, CONTINUES]);
    }
  });
