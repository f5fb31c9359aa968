/**
 * Machines on a node, with the fake driver: requests, observed state, what stays on the disk, and what an
 * agent finds after an earlier one died at any moment.
 */
import assert from "node:assert/strict";
import { mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { onThisHost, until } from "../../test/support/until.ts";
import { type Journal, readJournal } from "../src/machines/journal.ts";
import { bootDirectoryName } from "../src/machines/paths.ts";
import {
  hurriedClock,
  listFiles,
  machineIdOf,
  startTestNode,
  type TestNode,
  temporaryDirectory,
} from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");

test("a machine starts, stops, starts again and is removed without a trace", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const started = await node.want(A, 1, "running");
  assert.equal(started.state, "running");
  assert.equal(started.generation, 1);
  assert.ok(started.bootId !== null && started.runningSince !== null);
  assert.ok((started.timings?.totalMs ?? -1) >= 0);

  const stopped = await node.want(A, 2, "stopped");
  assert.deepEqual(
    [stopped.state, stopped.bootId, stopped.runningSince, stopped.hasPoweredOff],
    ["stopped", null, null, false],
  );
  // The journal may still be written.
  const files = (await listFiles(join(directory.path, "machines", A))).filter((name) => name !== "journal.json.new");
  assert.deepEqual(files, ["boots", "disk", "journal.json"]);

  const again = await node.want(A, 3, "running");
  assert.equal(again.state, "running");
  assert.notEqual(again.bootId, started.bootId);

  assert.equal((await node.want(A, 4, "absent")).state, "absent");
  assert.deepEqual(await listFiles(join(directory.path, "machines")), []);
});

test("a machine whose directory cannot be made leaves its user to the next one", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const userOf = async (machineId: string): Promise<number> => {
    await node.want(machineId, 1, "running");
    const read = await readJournal(join(directory.path, "machines", machineId), machineId);
    return read.kind === "sound" ? read.journal.uid : Number.NaN;
  };
  const first = await userOf(machineIdOf("c"));
  // In its way, as a full disk is.
  await writeFile(join(directory.path, "machines", A), "");
  for (const generation of [1, 2, 3]) await assert.rejects(node.want(A, generation, "running"), /EEXIST/);
  assert.equal(await userOf(B), first + 1);
});

test("a removal that is requested again and again while it happens logs no error and leaves nothing", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  for (const machineId of [..."0123456789"].map(machineIdOf)) {
    await node.want(machineId, 1, "running");
    const absent = [{ machineId, generation: 2 }];
    const removed = node.want(machineId, 2, "absent");
    while (node.fleet.observe(machineId).state !== "absent") {
      void node.fleet.acknowledged(systemClock.boottime(), absent);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await removed;
  }
  assert.deepEqual(await listFiles(join(directory.path, "machines")), []);
  assert.deepEqual(
    node.logLines.filter((line) => line.includes('"error"')),
    [],
  );
});

test("without free memory a start is refused with advice, and succeeds when there is some again", async () => {
  await using directory = await temporaryDirectory();
  let availableMemoryMb = 300;
  const node = await startTestNode(directory.path, { availableMemoryMb: () => availableMemoryMb });
  const refused = await node.want(A, 1, "running");
  assert.equal(refused.state, "failed");
  assert.match(refused.reason ?? "", /the node has 300 MB of memory left and keeps 655 MB free; stop machines/);
  availableMemoryMb = 10_000;
  assert.equal((await node.want(A, 2, "running")).state, "running");
  // Boots are counted, so a slot that was given back is available again.
  assert.equal(node.deps.bootSlots.taken, 0);
});

test("removing a machine that never existed succeeds", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  assert.equal((await node.want(A, 7, "absent")).state, "absent");
});

test("an older desired state is refused, also one that would restore a removed machine", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 5, "running");
  const late = await node.want(A, 4, "stopped");
  assert.deepEqual([late.state, late.generation], ["running", 5]);
  const repeated = await node.want(A, 5, "running");
  assert.equal(repeated.state, "running");
  await node.want(A, 6, "absent");
  const ghost = await node.want(A, 5, "running");
  assert.equal(ghost.state, "absent");
  assert.deepEqual(await listFiles(join(directory.path, "machines")), []);
});

test("an image that does not exist fails the start with the reason, and a new desired state tries again", async () => {
  await using directory = await temporaryDirectory();
  let node = await startTestNode(directory.path);
  const failed = await node.want(A, 1, "running", { image: "missing:1" });
  assert.equal(failed.state, "failed");
  assert.match(failed.reason ?? "", /missing:1 does not exist/);
  assert.equal(failed.reasonCode, "image_not_found");
  await node.fleet.release();
  node = await startTestNode(directory.path);
  assert.equal(node.fleet.find(A)?.observe().reasonCode, "image_not_found");
  const retried = await node.want(A, 2, "running", { image: "alpine" });
  assert.equal(retried.state, "running");
  assert.deepEqual([retried.reason, retried.reasonCode], [null, null]);
});

test("an image counts as used when a machine is created from it, not only when it was pulled", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const usedAt = async (): Promise<number> =>
    (await node.images.list()).find(({ reference }) => reference === "alpine")?.lastUsedAt ?? 0;
  await node.want(A, 1, "running", { image: "alpine" });
  const first = await usedAt();
  await until(() => node.clock.now() > first, { what: "the clock to advance" });
  await node.want(B, 1, "running", { image: "alpine" });
  assert.ok((await usedAt()) > first);
  await node.fleet.release();
});

test("a machine with a blocked network starts only from a cached image", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const spec = { network: { mode: "blocked" as const } };
  const refused = await node.want(A, 1, "running", { image: "alpine", spec });
  assert.equal(refused.state, "failed");
  assert.match(refused.reason ?? "", /not cached on this node/);
  assert.equal(refused.reasonCode, "image_not_cached");
  await node.want(B, 1, "running", { image: "alpine" });
  assert.equal((await node.want(A, 2, "running", { image: "alpine", spec })).state, "running");
});

test("a machine without restarts is failed after a crash, with the reason", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { spec: { restart: "never" } });
  endFromInside(node, A, "crash");
  const seen = await until(() => node.fleet.observe(A).state === "failed" && node.fleet.observe(A), { what: "failed" });
  assert.match(seen.reason ?? "", /crashed/);
  // Not an event as well, because the state says it: the timeline would have it twice.
  assert.deepEqual(node.events, []);
  assert.deepEqual(await listFiles(join(directory.path, "machines", A, "boots")), []);
  assert.equal((await node.want(A, 2, "running")).state, "running");
});

test("a guest that powers off leaves the machine stopped, with an event", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  endFromInside(node, A, "poweroff");
  const seen = await until(() => node.fleet.observe(A).state === "stopped" && node.fleet.observe(A), {
    what: "stopped",
  });
  assert.equal(seen.hasPoweredOff, true);
  assert.equal((await node.want(A, 2, "stopped")).hasPoweredOff, false);
});

test("a machine whose restored guest crashes when configured boots instead, and the template is discarded", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const started = await node.want(A, 1, "running", { env: { FAKE_RESTORED_CRASH: "1" } });
  assert.deepEqual([started.state, started.timings?.vm, started.reason], ["running", "boot", null]);
  assert.deepEqual(
    node.driver.forgottenTemplates.map(({ cpus, memoryMb }) => [cpus, memoryMb]),
    [[1, 256]],
  );
  assert.deepEqual(await listFiles(join(directory.path, "machines", A, "boots")), [
    bootDirectoryName(started.bootId ?? ""),
    join(bootDirectoryName(started.bootId ?? ""), "vm.json"),
  ]);
});

test("a machine whose disk crashes every guest fails after the second boot, and no template is discarded", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const env = { FAKE_RESTORED_CRASH: "1", FAKE_CONFIGURE_FAIL: "1" };
  const failed = await node.want(A, 1, "running", { env });
  assert.equal(failed.state, "failed");
  assert.deepEqual(node.driver.forgottenTemplates, []);
});

test("a failed boot, or a guest that cannot be configured, fails the start and leaves no boot", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  for (const [index, word] of ["FAKE_BOOT_FAIL", "FAKE_CONFIGURE_FAIL"].entries()) {
    const failed = await node.want(A, index + 1, "running", { env: { [word]: "1" } });
    assert.equal(failed.state, "failed");
    assert.match(failed.reason ?? "", new RegExp(word));
    assert.deepEqual(await listFiles(join(directory.path, "machines", A, "boots")), []);
  }
});

test("delete works at once during a pull, and during a boot", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const slow = [{ image: "app:slow-60000" }, { env: { FAKE_BOOT_MS: "60000" } }];
  for (const [index, how] of slow.entries()) {
    const id = index === 0 ? A : B;
    await node.want(id, 1, "running", { ...how, waitMs: 0 });
    const isBusy = () =>
      index === 0 ? node.events.some(({ message }) => message.startsWith("pulling image")) : isBooting(node, id);
    await until(isBusy, { what: index === 0 ? "the pull" : "the boot" });
    const startedAt = node.clock.monotonic();
    assert.equal((await node.want(id, 2, "absent")).state, "absent");
    assert.ok(node.clock.monotonic() - startedAt < onThisHost(1_000));
  }
  assert.deepEqual(await listFiles(join(directory.path, "machines")), []);
});

test("stop works at once during a boot, and the machine starts afterwards", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_BOOT_MS: "60000" }, waitMs: 0 });
  await until(() => isBooting(node, A), { what: "the boot" });
  const stopped = await node.want(A, 2, "stopped");
  assert.deepEqual([stopped.state, stopped.reason], ["stopped", null]);
  assert.equal((await node.want(A, 3, "running")).state, "running");
});

test("a pull reports progress while it runs, and its start and end are events", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const done = node.want(A, 1, "running", { image: "app:slow-200" });
  await until(() => node.fleet.observe(A).progress?.includes("layer"), { what: "progress" });
  assert.equal((await done).state, "running");
  assert.deepEqual(
    node.events.map(({ message }) => message.split(",")[0]),
    ["pulling image app:slow-200", "image app:slow-200 is on the node"],
  );
});

test("a guest that does not shut down is killed after the deadline", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(100) });
  await node.want(A, 1, "running", { env: { FAKE_IGNORE_SHUTDOWN: "1" } });
  const stopped = await node.want(A, 2, "stopped", { waitMs: 2_000_000 });
  assert.equal(stopped.state, "stopped");
  assert.match(node.events.at(-1)?.message ?? "", /did not shut down cleanly/);
});

test("no more machines boot at once than there are slots, and all of them start", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { bootsAtOnceMax: 2 });
  const ids = ["1", "2", "3", "4", "5", "6"].map(machineIdOf);
  const all = Promise.all(ids.map((id) => node.want(id, 1, "running", { env: { FAKE_BOOT_MS: "30" } })));
  let most = 0;
  await until(
    () => {
      const states = ids.map((id) => node.fleet.observe(id).state);
      most = Math.max(most, states.filter((state) => state === "booting").length);
      return states.every((state) => state === "running");
    },
    { what: "all running", everyMs: 1 },
  );
  // A machine that is being configured has released its slot, but is still `booting`.
  assert.ok(most <= 4, `${most} at once`);
  assert.ok((await all).every(({ state }) => state === "running"));
});

test("a restarted agent adopts running VMs, and runs nothing twice", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const before = await first.want(A, 1, "running", { env: { GREETING: "hello" } });
  await first.want(B, 1, "running");
  await first.want(B, 2, "stopped");
  await journalsAreWritten(directory.path);
  const second = await startTestNode(directory.path);
  assert.deepEqual(second.adoption, { machines: 2, running: 1, swept: 0, removed: 0 });
  assert.deepEqual(second.fleet.observe(A), before);
  assert.equal(second.fleet.observe(B).state, "stopped");
  assert.equal((await second.want(A, 2, "stopped")).state, "stopped");
});

test("an agent that died while a machine booted continues that boot, or boots again if it is gone", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const env = { FAKE_BOOT_MS: String(onThisHost(200)) };
  await first.want(A, 1, "running", { env, waitMs: 0 });
  await until(() => isBooting(first, A), { what: "the boot" });
  const { bootId } = first.fleet.observe(A);
  await first.fleet.release();
  const second = await startTestNode(directory.path);
  const running = await second.want(A, 1, "running", { env });
  assert.deepEqual([running.state, running.bootId], ["running", bootId]);

  const journalPath = join(directory.path, "machines", A, "journal.json");
  const journal = JSON.parse(await readFile(journalPath, "utf8")) as Journal;
  const begun = { bootId: "boot-begun", record: null, runningSince: null, timings: null };
  await second.want(A, 2, "stopped");
  await second.fleet.release();
  await writeFile(journalPath, JSON.stringify({ ...journal, generation: 3, boot: begun }));
  const third = await startTestNode(directory.path);
  const fresh = await third.want(A, 3, "running");
  assert.equal(fresh.state, "running");
  assert.notEqual(fresh.bootId, "boot-begun");
});

test("a machine that an earlier agent was booting can be stopped at once", async () => {
  await using directory = await temporaryDirectory();
  // The abandoned boot waits without a timer, which would keep this process alive.
  const clock = { ...systemClock, sleep: () => new Promise<void>(() => {}) };
  const first = await startTestNode(directory.path, { clock });
  const slow = { env: { FAKE_BOOT_MS: "60000" } };
  await first.want(A, 1, "running", { ...slow, waitMs: 0 });
  await until(() => isBooting(first, A), { what: "the boot" });
  await first.fleet.release();
  const second = await startTestNode(directory.path);
  assert.equal(second.fleet.observe(A).state, "booting");
  const stopped = await second.want(A, 2, "stopped", { ...slow, waitMs: 5_000 });
  assert.deepEqual([stopped.state, stopped.reason], ["stopped", null]);
  assert.ok(!(await listFiles(directory.path)).some((path) => path.endsWith("vm.json")));
});

test("a machine without restarts whose VM ended while no agent ran is failed", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId } = await first.want(A, 1, "running", { spec: { restart: "never" } });
  await first.fleet.release();
  await rm(join(directory.path, "machines", A, "boots", bootDirectoryName(bootId ?? ""), "vm.json"));
  const second = await startTestNode(directory.path);
  const seen = await until(() => second.fleet.observe(A).state === "failed" && second.fleet.observe(A), {
    what: "failed",
  });
  assert.match(seen.reason ?? "", /while its node was down/);
  assert.deepEqual(second.events, []);
});

test("a restarted agent removes leftovers, kills unknown VMs and continues removals", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  await first.want(A, 1, "running");
  await first.want(B, 1, "running");
  await first.fleet.release();
  const machines = join(directory.path, "machines");
  const journalPath = join(machines, B, "journal.json");
  const journal = JSON.parse(await readFile(journalPath, "utf8")) as Journal;
  await writeFile(journalPath, JSON.stringify({ ...journal, generation: 2, desired: "absent" }));
  await writeFile(join(machines, A, "journal.json.new"), "half");
  await mkdir(join(machines, A, "boots", "boot-ended"), { recursive: true });
  await mkdir(join(machines, machineIdOf("c"), "boots", "boot-unknown"), { recursive: true });
  await mkdir(join(machines, machineIdOf("d")));
  await writeFile(join(machines, machineIdOf("d"), "disk"), "precious");
  const second = await startTestNode(directory.path);
  await until(() => second.fleet.find(B) === undefined, { what: "B removed" });
  assert.equal(second.adoption.removed, 3);
  assert.equal(second.fleet.observe(A).state, "running");
  const left = await listFiles(machines);
  assert.deepEqual(
    left.filter((path) => !path.startsWith(A)),
    [machineIdOf("d"), join(machineIdOf("d"), "disk")],
  );
  assert.ok(!left.some((path) => path.endsWith(".new") || path.includes("boot-ended")));
});

const MEMORY = { memoryId: "m", suspendedAt: 1, guestBootId: "boot-0", workload: null };
/** Files that no other node has, and what a journal says of them. */
const ACCOUNTED_FOR: readonly {
  readonly what: string;
  readonly state: "running" | "stopped";
  readonly change: Partial<Journal>;
  readonly names: readonly string[];
}[] = [
  {
    ...{ what: "saved memory", state: "stopped", change: { keepsMemory: true, memory: MEMORY } },
    names: ["memory", "memory-base"],
  },
  { what: "what the memory of a running machine differs from", state: "running", change: {}, names: ["memory-base"] },
];
for (const { what, state, change, names } of ACCOUNTED_FOR)
  test(`a restarted agent keeps ${what}, and removes it when the journal says nothing of it`, async () => {
    await using directory = await temporaryDirectory();
    const own = join(directory.path, "machines", A);
    const journalPath = join(own, "journal.json");
    const restart = async (more: Partial<Journal>): Promise<readonly string[]> => {
      const journal = JSON.parse(await readFile(journalPath, "utf8")) as Journal;
      await writeFile(journalPath, JSON.stringify({ ...journal, ...more }));
      const node = await startTestNode(directory.path);
      await node.fleet.release();
      return (await listFiles(own)).filter((name) => names.includes(name));
    };
    const first = await startTestNode(directory.path);
    await first.want(A, 1, "running");
    if (state === "stopped") await first.want(A, 2, "stopped");
    await first.fleet.release();
    // It has the environment of the machine.
    assert.equal((await stat(journalPath)).mode & 0o777, 0o600);
    for (const name of names) await writeFile(join(own, name), Buffer.alloc(1));
    assert.deepEqual((await restart(change)).toSorted(), names.toSorted());
    assert.deepEqual(await restart({ memory: null, boot: null, desired: "stopped" }), []);
  });

test("an unreadable journal does not prevent others from starting, and unknown files are left alone", async () => {
  await using directory = await temporaryDirectory();
  const machines = join(directory.path, "machines");
  await mkdir(join(machines, A), { recursive: true });
  await mkdir(join(machines, "lost+found"));
  await writeFile(join(machines, A, "journal.json"), "{");
  await writeFile(join(machines, A, "somebody's"), "precious");
  const node = await startTestNode(directory.path);
  assert.equal(node.fleet.observe(A).state, "failed");
  assert.deepEqual(await listFiles(machines), ["lost+found", A, join(A, "journal.json"), join(A, "somebody's")]);
  assert.equal((await node.want(B, 1, "running")).state, "running");
});

/**
 * The answer is on the disk shortly afterwards: an agent that died in between would have continued from the
 * older state.
 */
async function journalsAreWritten(directory: string): Promise<void> {
  const read = async (id: string): Promise<Journal> =>
    JSON.parse(await readFile(join(directory, "machines", id, "journal.json"), "utf8"));
  const areWritten = async (): Promise<boolean> => {
    const [a, b] = await Promise.all([read(A), read(B)]);
    const files = await listFiles(join(directory, "machines"));
    return a.boot?.runningSince !== null && b.boot === null && !files.some((file) => file.endsWith(".new"));
  };
  await until(areWritten, { what: "the journals to be on the disk" });
}

/** Whether its VM is on the disk, and its guest does not answer yet. */
async function isBooting({ fleet, deps }: TestNode, id: string): Promise<boolean> {
  const files = await listFiles(join(deps.machinesDirectory, id));
  return fleet.observe(id).state === "booting" && files.some((file) => file.endsWith("vm.json"));
}

/** The machine is already running when it ends: the duration of its start does not matter. */
function endFromInside(node: TestNode, machineId: string, command: "crash" | "poweroff"): void {
  const request = { argv: [command], cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
  const exec = node.fleet.find(machineId)?.access.guest?.exec({ ...request, isBackground: false });
  // The exit of a command whose machine has ended is not reported.
  exec?.exit.catch(() => undefined);
}

test("a generation is reported when it is on the disk, so that no agent continues with one before what was reported", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const first = await node.want(A, 1, "running");
  const stops = node.want(A, 2, "stopped");
  const seen = node.fleet.observe(A);
  assert.deepEqual([seen.generation, seen.state, seen.bootId], [1, "running", first.bootId]);
  const stopped = await stops;
  assert.deepEqual([stopped.generation, stopped.state], [2, "stopped"]);
  const journal = await readJournal(join(directory.path, "machines", A), A);
  assert.equal(journal.kind === "sound" && journal.journal.generation, 2);
});
