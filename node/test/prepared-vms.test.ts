/**
 * Prepared VMs, with the fake driver: which machine gets them, failures, and that none outlives its agent.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import { until } from "../../test/support/until.ts";
import { UserIds } from "../src/host/user-ids.ts";
import { immovable, needsRoot } from "./support/immovable.ts";
import { machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const sizeOf = (memoryMb: number) => ({ cpus: 1, memoryMb, diskGb: 1, machineId: A });

async function waitingBoots(node: TestNode): Promise<readonly string[]> {
  const found = await node.driver.find();
  return found.filter(({ startedFor }) => startedFor === "prepared").map(({ record }) => record.bootId);
}

/** A node on which the VMs for the default size wait. */
async function nodeWithWaiting(directory: string): Promise<TestNode> {
  const node = await startTestNode(directory, { preparing: async () => {} });
  await node.deps.prepared.begin();
  await until(async () => (await waitingBoots(node)).length === 5, { what: "VMs to wait" });
  return node;
}

test("a machine uses a prepared VM together with its disk, and no prepared VM outlives its agent", async () => {
  await using directory = await temporaryDirectory();
  const node = await nodeWithWaiting(directory.path);
  const size = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };
  const started = await node.want(A, 1, "running", { spec: size });
  assert.deepEqual([started.state, started.timings?.vm], ["running", "prepared"]);
  await node.fleet.release();
  assert.deepEqual(
    (await node.driver.find()).map(({ startedFor }) => startedFor),
    [A],
  );
});

test("a VM whose kind is discarded during preparation is killed, also when the agent stops meanwhile", async () => {
  for (const isStopping of [false, true]) {
    await using directory = await temporaryDirectory();
    const [begun, gate] = [Promise.withResolvers<string>(), Promise.withResolvers<void>()];
    const node = await startTestNode(directory.path, {
      preparing: async ({ memoryMb, bootId }) => {
        if (memoryMb !== 300) return;
        begun.resolve(bootId);
        await gate.promise;
      },
    });
    const { prepared, liveBoots } = node.deps;
    await prepared.begin();
    prepared.take(sizeOf(300));
    const bootId = await begun.promise;
    for (let memoryMb = 401; memoryMb <= 408; memoryMb += 1) prepared.take(sizeOf(memoryMb));
    const released = isStopping ? node.fleet.release() : undefined;
    gate.resolve();
    await until(async () => !(await waitingBoots(node)).includes(bootId), { what: "the VM to be ended" });
    await until(() => !liveBoots.has(bootId), { what: "its boot to be forgotten" });
    await (released ?? node.fleet.release());
    assert.deepEqual(await node.driver.find(), []);
  }
});

test("VMs are prepared while fewer starts run than there are processors, and not otherwise", async () => {
  await using directory = await temporaryDirectory();
  let attempts = 0;
  const node = await startTestNode(directory.path, {
    preparing: async () => {
      attempts += 1;
    },
  });
  const { prepared } = node.deps;
  const processors = availableParallelism();
  for (let start = 0; start < processors; start += 1) prepared.starting();
  await prepared.begin();
  let looks = 0;
  await until(async () => (await waitingBoots(node)).length === 0 && (looks += 1) > 50, { what: "time to pass" });
  assert.equal(attempts, 0);
  prepared.started(A);
  await until(async () => (await waitingBoots(node)).length === 5, { what: "VMs to wait", deadlineMs: 1_500 });
  await node.fleet.release();
});

test("a kind that cannot be prepared is retried later and logged once, and the next kind is prepared", async () => {
  await using directory = await temporaryDirectory();
  let attempts = 0;
  const prepared300 = "a machine of 300 MB can not be prepared here";
  const node = await startTestNode(directory.path, {
    preparing: async ({ memoryMb }) => {
      if (memoryMb !== 300) return;
      attempts += 1;
      throw new Error(prepared300);
    },
  });
  const { prepared } = node.deps;
  await prepared.begin();
  prepared.take(sizeOf(300));
  await until(() => attempts > 0, { what: "the first attempt" });
  for (let count = 0; count < 3; count += 1) prepared.take(sizeOf(400));
  await until(async () => (await waitingBoots(node)).length === 5 + 3, { what: "the kind behind it" });
  assert.equal(attempts, 1);
  const said = node.logLines.filter((line) => line.includes(prepared300));
  assert.equal(said.length, 1, said.join(""));
  await node.fleet.release();
  assert.deepEqual(await node.driver.find(), []);
});

test("a prepared VM that ends is replaced, and nothing of it remains", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { preparing: async () => {} });
  const { prepared, liveBoots } = node.deps;
  await prepared.begin();
  await until(async () => (await waitingBoots(node)).length === 5, { what: "VMs to wait" });
  const [first = "", ...others] = await waitingBoots(node);
  assert.equal(await node.driver.sweep(new Set(others)), 1);
  prepared.starting();
  prepared.started(A);
  await until(async () => (await waitingBoots(node)).length === 5, { what: "another one to wait" });
  assert.ok(!(await waitingBoots(node)).includes(first));
  assert.deepEqual(new Set(await waitingBoots(node)), new Set(liveBoots));
  assert.equal((await readdir(join(directory.path, "prepared"))).length, 5);
  await node.fleet.release();
});

test("a file of a prepared VM that cannot be removed ends neither the agent nor its next start", {
  skip: needsRoot,
}, async () => {
  await using directory = await temporaryDirectory();
  const node = await nodeWithWaiting(directory.path);
  const [name = ""] = await readdir(join(directory.path, "prepared"));
  await using _left = await immovable(join(directory.path, "prepared", name, "bulk"));
  await node.deps.prepared.discardWaiting();
  await node.fleet.release();
  const next = await startTestNode(directory.path, { preparing: async () => {} });
  await next.deps.prepared.begin();
  await until(async () => (await waitingBoots(next)).length >= 5, { what: "VMs to wait" });
});

test("prepared VMs are discarded for a machine that must boot, which is refused only if that is not enough", async () => {
  await using directory = await temporaryDirectory();
  let availableMemoryMb = 16_384;
  const node = await startTestNode(directory.path, {
    preparing: async () => {},
    availableMemoryMb: () => availableMemoryMb,
  });
  await node.deps.prepared.begin();
  await until(async () => (await waitingBoots(node)).length === 5, { what: "VMs to wait" });
  availableMemoryMb = 10;
  const refused = await node.want(A, 1, "running", { spec: { memoryMb: 300 } });
  assert.equal(refused.state, "failed");
  assert.match(refused.reason ?? "", /the node has 10 MB of memory left and keeps \d+ MB free/);
  assert.deepEqual(await waitingBoots(node), []);
  availableMemoryMb = 16_384;
  const started = await node.want(A, 2, "running", { spec: { memoryMb: 300 } });
  assert.equal(started.state, "running");
  await node.fleet.release();
});

test("VMs of an image that is no longer used are killed, and the image may be removed", async () => {
  await using directory = await temporaryDirectory();
  let later = 0;
  const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + later };
  const node = await startTestNode(directory.path, { clock, preparing: async () => {} });
  const { prepared } = node.deps;
  await prepared.begin();
  const image = await node.images.find("local/busybox", null);
  assert.ok(image);
  const other = { ...image, digest: `sha256:${"7".repeat(64)}` };
  for (let count = 0; count < 2; count += 1) prepared.takeWithDisk(sizeOf(300), other);
  await until(async () => (await waitingBoots(node)).length === 5 + 2, { what: "the requested ones to wait" });
  assert.ok((await node.fleet.imagesInUse()).has(other.digest));
  later = 11 * 60_000;
  prepared.starting();
  prepared.started(A);
  await until(async () => (await waitingBoots(node)).length === 5, { what: "them to be discarded" });
  assert.ok(!(await node.fleet.imagesInUse()).has(other.digest));
  await node.fleet.release();
});

test("an image is worth a template from the third recent start on, or when VMs of it always wait", async () => {
  await using directory = await temporaryDirectory();
  const [permanent, frequent]: [boolean[], boolean[]] = [[], []];
  const node = await startTestNode(directory.path, {
    preparing: async ({ memoryMb, disk, isFrequent }) => {
      if (memoryMb === 300) frequent.push(isFrequent);
      else if (disk !== null) permanent.push(isFrequent);
    },
  });
  const { prepared } = node.deps;
  await prepared.begin();
  await until(async () => (await waitingBoots(node)).length === 5, { what: "VMs to wait" });
  const image = await node.images.find("local/busybox", null);
  assert.ok(image);
  const takeAndWait = async (count: number): Promise<void> => {
    prepared.takeWithDisk(sizeOf(300), image);
    prepared.starting();
    // The starts of A are still under way.
    prepared.started(machineIdOf("b"));
    await until(() => frequent.length === count, { what: `${count} VMs to be prepared` });
  };
  await takeAndWait(1);
  await takeAndWait(3);
  assert.deepEqual(frequent, [false, false, false]);
  await takeAndWait(5);
  assert.deepEqual(frequent.slice(3), [true, true]);
  assert.deepEqual(permanent, [false, true, true]);
  await node.fleet.release();
});

test("a start that fails with a prepared VM costs the node no user", async () => {
  await using directory = await temporaryDirectory();
  const node = await nodeWithWaiting(directory.path);
  const spec = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };
  for (const generation of [1, 2]) {
    const { state } = await node.want(A, generation, "running", { spec, env: { FAKE_BOOT_FAIL: "1" } });
    assert.equal(state, "failed");
  }
  await node.want(A, 3, "absent");
  await node.deps.prepared.release();
  const users = new UserIds(join(directory.path, "machines"));
  const taken = (from: UserIds): readonly number[] => Array.from({ length: 20 }, () => from.take());
  assert.deepEqual(taken(node.deps.users), taken(users));
});
