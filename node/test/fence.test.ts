/**
 * Fenced machines: their VMs end when no server acknowledges heartbeats, and only then, whatever the agent
 * does.
 */
import assert from "node:assert/strict";
import { glob, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import { FENCE_MS, type ObservedMachine } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");

/**
 * A host whose clocks jump when a test says so. Timers are those of the system: `wake` lets those fire that
 * are due.
 */
class Host {
  #aheadMs = 0;
  readonly #timers = new Set<{ at: number; callback: () => void }>();
  readonly clock: Clock = {
    ...systemClock,
    now: () => systemClock.now() + this.#aheadMs,
    boottime: () => systemClock.boottime() + this.#aheadMs,
    timer: (ms, callback) => {
      const own = { at: this.clock.now() + ms, callback };
      this.#timers.add(own);
      const timer = systemClock.timer(ms, () => this.#timers.delete(own) && callback());
      return { cancel: () => (this.#timers.delete(own), timer.cancel()) };
    },
  };

  pass(ms: number): void {
    this.#aheadMs += ms;
    for (const timer of [...this.#timers])
      if (timer.at <= this.clock.now() && this.#timers.delete(timer)) timer.callback();
  }
}

const acknowledge = (node: TestNode, host: Host): Promise<void> => node.fleet.acknowledged(host.clock.boottime(), []);

const want = (node: TestNode, id: string, generation: number, isFenced: boolean): Promise<ObservedMachine> =>
  node.want(id, generation, "running", { isFenced });

const runs = (node: TestNode, id: string, before: string | null = null): Promise<ObservedMachine> =>
  until(
    () => {
      const seen = node.fleet.observe(id);
      return seen.state === "running" && seen.bootId !== before && seen;
    },
    { what: `${id} to run` },
  );

test("a fenced VM ends when its lease does, is not started before a server answers, and keeps its disk; another one runs on", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const acknowledgedAt = host.clock.now();
  const fenced = await want(node, A, 1, true);
  const ordinary = await want(node, B, 1, false);
  assert.deepEqual(
    [fenced.state, fenced.isFenced, ordinary.state, ordinary.isFenced],
    ["running", true, "running", false],
  );
  host.pass(FENCE_MS - 1_000);
  assert.equal(node.fleet.observe(A).state, "running");
  // The agent is as if it had been stopped for a minute.
  host.pass(60_000);
  await until(() => node.fleet.observe(A).lastRun !== null && node.fleet.observe(A).state === "preparing", {
    what: "the fenced VM to end",
  });
  const ended = node.fleet.observe(A).lastRun;
  assert.equal(ended?.cause, "fenced");
  assert.ok((ended?.endedAt ?? 0) <= acknowledgedAt + FENCE_MS + 20, "it is billed beyond its fence");
  assert.deepEqual(await node.driver.find().then((found) => found.map(({ startedFor }) => startedFor)), [B]);
  assert.equal(node.fleet.observe(B).bootId, ordinary.bootId);
  await acknowledge(node, host);
  const again = await runs(node, A, fenced.bootId);
  assert.deepEqual([again.generation, again.isFenced, again.reason], [1, true, null]);
  assert.ok(await stat(join(directory.path, "machines", A, "disk")));
  assert.deepEqual(
    node.deps.runs
      .all(10)
      .runs.map(({ cause }) => cause)
      .toSorted(),
    ["fenced", null, null],
  );
});

test("each acknowledged heartbeat lets it run on, and counts from when it was sent", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const first = await want(node, A, 1, true);
  for (let beat = 0; beat < 10; beat += 1) {
    host.pass(5_000);
    await acknowledge(node, host);
  }
  assert.equal(node.fleet.observe(A).bootId, first.bootId);
  const [sentAt, shownAt] = [host.clock.boottime(), host.clock.now()];
  host.pass(FENCE_MS - 2_000);
  // The answer came that late.
  await node.fleet.acknowledged(sentAt, []);
  host.pass(2_100);
  await until(() => node.fleet.observe(A).lastRun !== null, { what: "the VM to end" });
  const afterMs = (node.fleet.observe(A).lastRun?.endedAt ?? 0) - shownAt;
  assert.ok(afterMs <= FENCE_MS + 50, `it ended ${afterMs} ms after the heartbeat was sent`);
});

test("a lifted fence ends nothing, and no earlier request fences the machine again", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const first = await want(node, A, 1, true);
  await want(node, A, 1, false);
  await until(() => !node.fleet.observe(A).isFenced, { what: "the fence to be lifted" });
  await want(node, A, 1, true);
  await want(node, A, 2, true);
  host.pass(10 * FENCE_MS);
  assert.deepEqual([node.fleet.observe(A).bootId, node.fleet.observe(A).isFenced], [first.bootId, false]);
});

test("a fence that was lifted before its node had any request is not given by the first one, which arrives late", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const first = await want(node, A, 1, false);
  const late = await want(node, A, 1, true);
  assert.deepEqual([late.bootId, late.isFenced], [first.bootId, false]);
  host.pass(10 * FENCE_MS);
  assert.equal(node.fleet.observe(A).bootId, first.bootId);
});

test("the VM of a killed agent ends as well; the next one starts it when a server answers, and not what was replaced", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const [kept, replaced] = [await want(node, A, 1, true), await want(node, B, 1, true)];
  const diedAt = host.clock.now();
  await node.fleet.release();
  host.pass(FENCE_MS + 1_000);
  const next = await startTestNode(directory.path, { clock: host.clock, lastAliveAt: diedAt });
  assert.deepEqual(await next.driver.find(), []);
  await until(() => next.fleet.observe(A).state === "preparing", { what: "the machine to wait" });
  await next.fleet.acknowledged(host.clock.boottime(), [{ machineId: B, generation: 2 }]);
  assert.notEqual(next.fleet.observe(B).state, "running");
  const again = await runs(next, A, kept.bootId);
  assert.equal(again.lastRun?.endedAt, diedAt);
  await until(() => next.fleet.observe(B).state === "absent", { what: "the replaced machine to be removed" });
  assert.ok(!next.logLines.some((line) => line.includes("twice")), replaced.bootId ?? "");
});

test("the VM of an agent that was restarted keeps its fence, and runs on when a server answers in time", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const first = await want(node, A, 1, true);
  await node.fleet.release();
  host.pass(10_000);
  const next = await startTestNode(directory.path, { clock: host.clock });
  assert.deepEqual([next.fleet.observe(A).bootId, next.fleet.observe(A).isFenced], [first.bootId, true]);
  await acknowledge(next, host);
  host.pass(FENCE_MS - 2_000);
  assert.equal(next.fleet.observe(A).state, "running");
  host.pass(3_000);
  await until(() => next.fleet.observe(A).lastRun !== null, { what: "the VM to end" });
});

/**
 * From this call on what is asked about the file of an image waits until `open`. `reached`: something waits.
 */
function holdRootFor(node: TestNode, call: number): { readonly reached: Promise<void>; open(): void } {
  const [reached, opened] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const rootFor = node.images.rootFor.bind(node.images);
  let calls = 0;
  node.images.rootFor = async (image) => {
    calls += 1;
    if (calls >= call) {
      reached.resolve();
      await opened.promise;
    }
    return await rootFor(image);
  };
  return { reached: reached.promise, open: () => opened.resolve() };
}

/** Waits for a state, and returns the VMs of the machine that were there meanwhile. */
async function vmsUntil(node: TestNode, id: string, state: ObservedMachine["state"]): Promise<ReadonlySet<string>> {
  const seen = new Set<string>();
  const look = async (): Promise<boolean> => {
    for await (const path of glob(join(node.deps.machinesDirectory, id, "boots", "*", "vm.json"))) seen.add(path);
    return node.fleet.observe(id).state === state;
  };
  await until(look, { what: `${id} to be ${state}` });
  return seen;
}

test("a start that an agent continues after it was stopped begins no VM before a server answers", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  // Its disk is made by the first call, and its VM began after the second.
  const held = holdRootFor(node, 2);
  await node.want(A, 1, "running", { isFenced: true, waitMs: 0, env: { FAKE_BOOT_MS: "200" } });
  await held.reached;
  host.pass(60_000);
  held.open();
  assert.deepEqual([...(await vmsUntil(node, A, "preparing"))], []);
  await acknowledge(node, host);
  assert.equal((await runs(node, A)).reason, null);
});

test("a suspended machine whose start continues after its agent was stopped keeps its memory until a server answers", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  await want(node, A, 1, true);
  await node.want(A, 2, "stopped", { isFenced: true, keepsMemory: true });
  const held = holdRootFor(node, 1);
  await node.want(A, 3, "running", { isFenced: true, waitMs: 0 });
  await held.reached;
  host.pass(60_000);
  held.open();
  assert.deepEqual([...(await vmsUntil(node, A, "preparing"))], []);
  await acknowledge(node, host);
  assert.equal((await runs(node, A)).isResumed, true);
});

test("a machine that is to be absent while its disk is made does not take the VM that waits with that disk", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock, preparing: () => Promise.resolve() });
  await node.deps.prepared.begin();
  await until(() => node.deps.prepared.imageDigests.length > 0, { what: "a VM with a disk to be prepared" });
  await acknowledge(node, host);
  const held = holdRootFor(node, 1);
  const spec = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };
  await node.want(A, 1, "running", { isFenced: true, waitMs: 0, spec, env: { FAKE_BOOT_MS: "200" } });
  await held.reached;
  await node.fleet.acknowledged(host.clock.boottime(), [{ machineId: A, generation: 2 }]);
  held.open();
  assert.deepEqual([...(await vmsUntil(node, A, "absent"))], []);
});

test("a VM that cannot be fenced is reported as such, and runs on", async () => {
  await using directory = await temporaryDirectory();
  const host = new Host();
  const node = await startTestNode(directory.path, { clock: host.clock });
  await acknowledge(node, host);
  const observed = await node.want(A, 1, "running", { isFenced: true, env: { FAKE_NO_FENCE: "1" } });
  assert.deepEqual([observed.state, observed.isFenced], ["running", false]);
  host.pass(10 * FENCE_MS);
  assert.equal(node.fleet.observe(A).bootId, observed.bootId);
});
