/**
 * The VMM of a running machine is replaced by one of the installed program: the machine runs on as the same
 * boot, and whatever ends in the middle, it runs once.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import type { ReplacementMode, ReplacedVmm } from "../src/machines/replacing.ts";
import { machineIdOf, machineOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const SIGNAL = new AbortController().signal;

interface VmFile {
  readonly bootId: string;
  readonly isPaused?: boolean;
  readonly program?: string;
}

/** The VMs of machine A on the disk. */
function vmsIn(directory: string): readonly VmFile[] {
  const boots = join(directory, "machines", A, "boots");
  return readdirSync(boots).flatMap((name) => {
    try {
      return [JSON.parse(readFileSync(join(boots, name, "vm.json"), "utf8")) as VmFile];
    } catch {
      return [];
    }
  });
}

/** The VM of machine A, which is the only one and runs. */
function onlyVm(directory: string): VmFile {
  const [vm, ...others] = vmsIn(directory);
  assert.ok(vm !== undefined);
  assert.deepEqual(others, []);
  assert.notEqual(vm.isPaused, true);
  return vm;
}

const replace = (node: TestNode, how: ReplacementMode, signal = SIGNAL): Promise<ReplacedVmm> =>
  node.replacements.replace(machineOf(node, A), how, signal);

const running = (node: TestNode): Promise<ObservedMachine> =>
  until(() => node.fleet.observe(A).state === "running" && node.fleet.observe(A), { what: "machine A to run" });

/** An agent of program 2 with machine A, which an agent of program 1 has started. */
async function upgraded(
  directory: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ readonly node: TestNode; readonly before: ObservedMachine }> {
  const first = await startTestNode(directory, { program: "1" });
  const before = await first.want(A, 1, "running", { env });
  await first.fleet.release();
  const node = await startTestNode(directory, { program: "2" });
  await running(node);
  return { node, before };
}

test("a machine gets a VMM of the installed program, runs on as the same boot, and commands continue", async () => {
  await using directory = await temporaryDirectory();
  const { node, before } = await upgraded(directory.path, { FAKE_KEEPS_COMMANDS: "1", FAKE_SUSPEND_MS: "20" });
  const machine = machineOf(node, A);
  assert.deepEqual(await node.replacements.outdated(), [A]);
  assert.equal(onlyVm(directory.path).program, "1");
  const states = new Set<string>();
  const done = replace(node, "live");
  await until(
    () => {
      const observed = node.fleet.observe(A);
      states.add(`${observed.state} ${observed.bootId}`);
      return machine.access.switched !== null;
    },
    { what: "commands to wait", everyMs: 1 },
  );
  const waited = machine.access.switched;
  assert.equal((await done).outcome, "replaced");
  await waited;
  states.add(`${node.fleet.observe(A).state} ${node.fleet.observe(A).bootId}`);
  assert.deepEqual([...states], [`running ${before.bootId}`]);
  assert.equal(node.fleet.observe(A).runningSince, before.runningSince);
  assert.equal(onlyVm(directory.path).program, "2");
  assert.notEqual(onlyVm(directory.path).bootId, before.bootId);
  assert.deepEqual(await node.replacements.outdated(), []);
  assert.deepEqual(await replace(node, "live"), { outcome: "current" });
  // One run, which has not ended.
  assert.deepEqual(
    node.deps.runs.all(10).runs.map(({ bootId, endedAt }) => [bootId, endedAt]),
    [[before.bootId, null]],
  );
  assert.equal(await node.fleet.endUnknownVms(), 0);
  // And the next agent adopts it.
  await node.fleet.release();
  const next = await startTestNode(directory.path, { program: "2" });
  assert.equal((await running(next)).bootId, before.bootId);
  assert.equal(next.adoption.swept, 0);
  assert.equal((await next.want(A, 2, "stopped")).state, "stopped");
  assert.deepEqual(vmsIn(directory.path), []);
  const [run] = next.deps.runs.all(10).runs;
  assert.deepEqual([run?.bootId, run?.startedAt], [before.bootId, before.runningSince]);
  assert.ok(run?.endedAt !== null);
});

test("requests for a new VMM that come together are one", async () => {
  await using directory = await temporaryDirectory();
  const { node } = await upgraded(directory.path);
  const signal = AbortSignal.timeout(60_000);
  const [first, ...others] = await Promise.all([1, 2, 3].map(() => replace(node, "live", signal)));
  assert.equal(first?.outcome, "replaced");
  for (const other of others) assert.equal(other, first);
  assert.equal(onlyVm(directory.path).program, "2");
});

for (const at of ["start", "copy", "take", "lost"])
  test(`a machine whose new VMM fails at ${at} runs on in the old one`, async () => {
    await using directory = await temporaryDirectory();
    const { node, before } = await upgraded(directory.path, { FAKE_REPLACE_FAIL: at });
    const vm = onlyVm(directory.path);
    const done = await replace(node, "live");
    assert.deepEqual(done, { outcome: "refused", reason: "FAKE_REPLACE_FAIL is set" });
    assert.equal(onlyVm(directory.path).bootId, vm.bootId);
    assert.deepEqual(node.fleet.observe(A).bootId, before.bootId);
    assert.equal(node.fleet.observe(A).state, "running");
    assert.ok(machineOf(node, A).access.guest !== null);
    assert.equal(await node.fleet.endUnknownVms(), 0);
  });

test("an agent that dies in the pause leaves a machine that runs on in the old VMM", async () => {
  await using directory = await temporaryDirectory();
  const { node, before } = await upgraded(directory.path, { FAKE_REPLACE_FAIL: "hangPaused" });
  void replace(node, "live");
  await until(() => vmsIn(directory.path).some(({ isPaused }) => isPaused === true), { what: "the pause", everyMs: 1 });
  const next = await startTestNode(directory.path, { program: "2" });
  assert.equal((await running(next)).bootId, before.bootId);
  assert.equal(onlyVm(directory.path).program, "1");
});

test("an agent that dies after the new VMM has the guest leaves a machine that runs on there, as the same run", async () => {
  await using directory = await temporaryDirectory();
  const { node, before } = await upgraded(directory.path, { FAKE_REPLACE_FAIL: "hang" });
  void replace(node, "live");
  const journal = join(directory.path, "machines", A, "journal.json");
  await until(() => readFileSync(journal, "utf8").includes('"isPaused":true'), { what: "the journal", everyMs: 1 });
  const next = await startTestNode(directory.path, { program: "2" });
  const after = await running(next);
  assert.deepEqual([after.bootId, after.runningSince], [before.bootId, before.runningSince]);
  assert.equal(onlyVm(directory.path).program, "2");
  assert.deepEqual(
    next.deps.runs.all(10).runs.map(({ bootId, endedAt }) => [bootId, endedAt]),
    [[before.bootId, null]],
  );
});

test("a machine that is to be restarted boots in a VMM of the installed program, as another run", async () => {
  await using directory = await temporaryDirectory();
  const { node, before } = await upgraded(directory.path);
  const done = await replace(node, "restart");
  assert.deepEqual(done, { outcome: "replaced", pauseMs: null });
  assert.equal(node.fleet.observe(A).state, "running");
  assert.notEqual(node.fleet.observe(A).bootId, before.bootId);
  assert.equal(onlyVm(directory.path).program, "2");
  const [first, second] = node.deps.runs.all(10).runs;
  assert.deepEqual([first?.bootId, first?.cause], [before.bootId, "stop"]);
  assert.equal(second?.endedAt, null);
});

test("a stop wins over a replacement that has not begun its pause, and an absent machine is not replaced", async () => {
  await using directory = await temporaryDirectory();
  const { node } = await upgraded(directory.path);
  const machine = machineOf(node, A);
  // The two slots are taken.
  const slots = await Promise.all([1, 2].map(() => node.deps.suspendSlots.take("tenant-1", SIGNAL)));
  const done = replace(node, "live");
  await until(() => machine.observe().state === "running", { what: "it to wait" });
  assert.equal((await node.want(A, 2, "stopped")).state, "stopped");
  assert.notEqual((await done).outcome, "replaced");
  for (const release of slots) release();
  assert.deepEqual(await replace(node, "live"), { outcome: "ended" });
  assert.deepEqual(vmsIn(directory.path), []);
});

test("an agent that was not restarted since another program was installed replaces nothing", async () => {
  await using directory = await temporaryDirectory();
  const { node } = await upgraded(directory.path);
  Object.assign(node.driver, { installedProgram: () => Promise.resolve("3") });
  const done = await replace(node, "live");
  assert.equal(done.outcome, "refused");
  assert.match(done.outcome === "refused" ? done.reason : "", /restart that first$/);
  assert.equal(onlyVm(directory.path).program, "1");
});
