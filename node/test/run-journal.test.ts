/**
 * The journal of runs: what a crash at any point leaves of it, what it reports, and what each end of a
 * machine writes there.
 */
import assert from "node:assert/strict";
import { appendFile, mkdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import type { Run } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { makeLog } from "../src/log.ts";
import { meterEgress } from "../src/machines/egress-meter.ts";
import { bootDirectoryName } from "../src/machines/paths.ts";
import { RunJournal } from "../src/machines/run-journal.ts";
import { hurriedClock, machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const log = makeLog({ level: "silent", clock: systemClock });
const START = { bootId: "boot-1", machineId: A, startedAt: 1_000 };
const END = { endedAt: 2_000, cause: "stop" } as const;

const openJournal = (path: string, options: { clock?: Clock; runsMax?: number } = {}): Promise<RunJournal> =>
  RunJournal.open({ path, clock: systemClock, log, onChange: () => undefined, ...options });

const withoutSequence = (runs: readonly Run[]) => runs.map(({ sequence: _, ...run }) => run);

const all = (runs: RunJournal): readonly Run[] => runs.all(1_000).runs;

test("a run is there again after a crash, whatever the last write left of its line", async () => {
  for (const torn of ["", '{"sequence":99', "\0\0\0\0", "null\n", '{"sequence":1}\n']) {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, "runs.journal");
    const first = await openJournal(path);
    first.open(START);
    await first.close("boot-1", END);
    first.open({ ...START, bootId: "boot-2" });
    await first.saved();
    await appendFile(path, torn);
    const second = await openJournal(path);
    assert.deepEqual(all(second), all(first), torn);
    second.open({ ...START, bootId: "boot-3" });
    await second.saved();
    const third = await openJournal(path);
    assert.deepEqual(all(third), all(second), torn);
    assert.equal(all(third).length, 3);
  }
});

test("only a run that has ended and was acknowledged is forgotten", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "runs.journal");
  const runs = await openJournal(path);
  runs.open(START);
  runs.open({ ...START, bootId: "boot-2" });
  runs.acknowledge(runs.changes(10).sequence);
  assert.deepEqual([runs.isEmpty, all(runs).length], [true, 2]);
  await runs.close("boot-1", END);
  assert.deepEqual(withoutSequence(runs.changes(10).runs), [{ ...START, ...END, egressBytes: 0 }]);
  runs.acknowledge(runs.changes(10).sequence - 1);
  assert.equal(runs.isEmpty, false);
  runs.acknowledge(runs.changes(10).sequence);
  assert.deepEqual(
    all(runs).map(({ bootId }) => bootId),
    ["boot-2"],
  );
});

test("what a run has sent grows until its end, and is there again after a crash", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "runs.journal");
  const runs = await openJournal(path);
  runs.count("boot-1", 7);
  runs.open(START);
  const { sequence } = runs.changes(10);
  for (const bytes of [300, 200, 300]) runs.count("boot-1", bytes);
  assert.deepEqual(withoutSequence(all(runs)), [{ ...START, endedAt: null, cause: null, egressBytes: 300 }]);
  assert.ok((all(runs)[0]?.sequence ?? 0) > sequence, "it is reported again");
  await runs.saved();
  const again = await openJournal(path);
  assert.equal(again.sentBytes("boot-1"), 300);
  await again.close("boot-1", { ...END, egressBytes: 250 });
  again.count("boot-1", 900);
  assert.deepEqual(withoutSequence(all(again)), [{ ...START, ...END, egressBytes: 300 }]);
});

test("reports hold the oldest changes first, and say whether they are complete", async () => {
  await using directory = await temporaryDirectory();
  const runs = await openJournal(join(directory.path, "runs.journal"));
  for (const bootId of ["boot-1", "boot-2", "boot-3"]) runs.open({ ...START, bootId });
  await runs.close("boot-1", END);
  const some = runs.changes(2);
  assert.deepEqual([some.isComplete, some.runs.map(({ bootId }) => bootId)], [false, ["boot-2", "boot-3"]]);
  runs.acknowledge(some.runs.at(-1)?.sequence ?? 0);
  assert.deepEqual(withoutSequence(runs.changes(2).runs), [{ ...START, ...END, egressBytes: 0 }]);
  assert.deepEqual([runs.all(3).isComplete, runs.all(3).runs.length], [true, 3]);
  assert.deepEqual([runs.all(2).isComplete, runs.all(2).runs.length], [false, 1]);
});

test("a clock that is set back ends no run before its start, and sequences grow all the same", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "runs.journal");
  let now = 5_000_000;
  const clock = { ...systemClock, now: () => now };
  const first = await openJournal(path, { clock });
  first.open({ ...START, startedAt: now });
  now -= 3_600_000;
  await first.close("boot-1", { endedAt: now, cause: "crash" });
  const { sequence } = first.changes(1);
  assert.deepEqual(withoutSequence(all(first)), [
    { ...START, startedAt: 5_000_000, endedAt: 5_000_000, cause: "crash", egressBytes: 0 },
  ]);
  first.acknowledge(sequence);
  const second = await openJournal(path, { clock });
  second.open({ ...START, bootId: "boot-2" });
  assert.ok(second.changes(1).sequence > sequence);
});

test("what cannot be written is kept and reported, and written when that is possible again", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "runs.journal");
  await mkdir(`${path}.new`);
  const runs = await openJournal(path);
  runs.open(START);
  await runs.close("boot-1", END);
  assert.deepEqual(withoutSequence(runs.changes(10).runs), [{ ...START, ...END, egressBytes: 0 }]);
  await rmdir(`${path}.new`);
  runs.acknowledge(0);
  await runs.saved();
  assert.deepEqual(all(await openJournal(path)), all(runs));
});

test("any number of changes may come while nothing can be written", async () => {
  await using directory = await temporaryDirectory();
  const parent = join(directory.path, "later");
  const runs = await openJournal(join(parent, "runs.journal"), { runsMax: 10 });
  for (let count = 0; count < 100_000; count += 1) {
    runs.open({ ...START, bootId: `boot-${count}` });
    void runs.close(`boot-${count}`, END);
  }
  await runs.saved();
  await mkdir(parent);
  runs.open({ ...START, bootId: "boot-last" });
  await runs.saved();
  assert.deepEqual(all(await openJournal(join(parent, "runs.journal"))), all(runs));
});

test("the journal keeps a bounded number of runs, and its file does not grow with those that are forgotten", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "runs.journal");
  const runs = await openJournal(path, { runsMax: 3 });
  runs.open({ ...START, bootId: "boot-open" });
  for (let count = 0; count < 2_000; count += 1) {
    runs.open({ ...START, bootId: `boot-${count}` });
    void runs.close(`boot-${count}`, END);
    if (count % 100 === 0) await runs.saved();
  }
  await runs.saved();
  assert.deepEqual(
    all(runs).map(({ bootId }) => bootId),
    ["boot-open", "boot-1998", "boot-1999"],
  );
  assert.ok((await readFile(path, "utf8")).split("\n").length < 1_500);
});

test("a file of a later version, or one that cannot be read, is not overwritten", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "runs.journal");
  await writeFile(path, '{"version":2,"sequence":7}\n');
  await assert.rejects(openJournal(path), /has version 2.*start the later version again/);
  await rm(path);
  await mkdir(path);
  await assert.rejects(openJournal(path), /cannot be read.*repair it, or move it away/);
});

/** Runs a command of the fake driver's guest that ends the VM. */
function end(node: TestNode, command: string): void {
  const request = { argv: [command], cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
  const exec = node.fleet.find(A)?.access.guest?.exec({ ...request, isBackground: false });
  exec?.exit.catch(() => undefined);
}

/** From now on the guest of the boot answers no agent that connects to it. */
async function silence(directory: string, bootId: string | null): Promise<void> {
  const path = join(directory, "machines", A, "boots", bootDirectoryName(bootId ?? ""), "vm.json");
  const file = JSON.parse(await readFile(path, "utf8"));
  await writeFile(path, JSON.stringify({ ...file, answersAt: Date.now() + 3_600_000 }));
}

const ended = async (node: TestNode, bootId: string | null): Promise<Run> =>
  until(() => all(node.deps.runs).find((run) => run.bootId === bootId && run.endedAt !== null), {
    what: "the end of the run",
  });

const ENDINGS = [
  ["a stop", "stop", async (node: TestNode) => void (await node.want(A, 2, "stopped"))],
  ["a removal of the machine", "delete", async (node: TestNode) => void (await node.want(A, 2, "absent"))],
  ["a power-off in the guest", "poweroff", async (node: TestNode) => end(node, "poweroff")],
  ["a crash", "crash", async (node: TestNode) => end(node, "crash")],
] as const;

for (const [what, cause, act] of ENDINGS) {
  test(`${what} ends the run of the machine as ${cause}, by the node's clock`, async () => {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    const { bootId, runningSince } = await node.want(A, 1, "running");
    const [opened] = all(node.deps.runs);
    assert.deepEqual(withoutSequence(all(node.deps.runs)), [
      { bootId, machineId: A, startedAt: runningSince, endedAt: null, cause: null, egressBytes: 0 },
    ]);
    const askedAt = node.clock.now();
    await act(node);
    const run = await ended(node, bootId);
    assert.equal(run.cause, cause);
    assert.ok((run.endedAt ?? 0) >= askedAt && (run.endedAt ?? 0) <= node.clock.now());
    assert.ok(run.sequence > (opened?.sequence ?? 0));
    await node.deps.runs.saved();
    // What is on the disk says the same, also when the machine is gone.
    const read = await openJournal(join(directory.path, "runs.journal"));
    assert.deepEqual(
      all(read).find((other) => other.bootId === bootId),
      run,
    );
  });
}

for (const [what, , act] of ENDINGS)
  test(`${what} ends the run of the machine with what it has sent, each run by itself`, async () => {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    const { bootId } = await node.want(A, 1, "running", { env: { FAKE_SENT_BYTES: "1234567" } });
    await act(node);
    const run = await ended(node, bootId);
    assert.deepEqual(
      [run.egressBytes, node.fleet.observe(A).lastRun?.egressBytes ?? 1_234_567],
      [1_234_567, 1_234_567],
    );
  });

test("what a machine sends after its channel broke counts until its VM is ended", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(100) });
  const { bootId } = await node.want(A, 1, "running", { env: { FAKE_SENDS: "1000" } });
  await silence(directory.path, bootId);
  node.fleet.find(A)?.access.guest?.close();
  const { startedAt, endedAt, cause, egressBytes } = await ended(node, bootId);
  assert.equal(cause, "unresponsive");
  const ms = (endedAt ?? 0) - startedAt;
  assert.ok(ms >= 400 && egressBytes >= 1000 * ms, `${egressBytes} bytes in ${ms} ms`);
});

test("what a machine has sent is kept when the next agent finds that its VM has ended", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId } = await first.want(A, 1, "running", { env: { FAKE_SENT_BYTES: "99" } });
  const stop = new AbortController();
  const metering = meterEgress(
    { runs: first.deps.runs, clock: first.clock, senders: () => first.fleet.senders() },
    stop.signal,
  );
  stop.abort();
  await metering;
  await first.fleet.release();
  await first.deps.runs.saved();
  await rm(join(directory.path, "machines", A, "boots", bootDirectoryName(bootId ?? ""), "vm.json"));
  const second = await startTestNode(directory.path);
  assert.equal((await ended(second, bootId)).egressBytes, 99);
});

test("a run continues when the agent is killed and restarted", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId, runningSince } = await first.want(A, 1, "running");
  await first.deps.runs.saved();
  await first.fleet.release();
  const second = await startTestNode(directory.path);
  assert.deepEqual(withoutSequence(all(second.deps.runs)), [
    { bootId, machineId: A, startedAt: runningSince, endedAt: null, cause: null, egressBytes: 0 },
  ]);
});

test("an agent that was killed before the start of a run was on the disk opens that run again", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId, runningSince } = await first.want(A, 1, "running");
  await first.fleet.release();
  await first.deps.runs.saved();
  await rm(join(directory.path, "runs.journal"));
  const second = await startTestNode(directory.path);
  assert.deepEqual(withoutSequence(all(second.deps.runs)), [
    { bootId, machineId: A, startedAt: runningSince, endedAt: null, cause: null, egressBytes: 0 },
  ]);
});

test("a machine whose journal does not know that it ran keeps the start of its run", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId, runningSince } = await first.want(A, 1, "running");
  await first.fleet.release();
  await first.deps.runs.saved();
  const path = join(directory.path, "machines", A, "journal.json");
  const journal = JSON.parse(await readFile(path, "utf8"));
  await writeFile(path, JSON.stringify({ ...journal, boot: { ...journal.boot, runningSince: null } }));
  const second = await startTestNode(directory.path);
  const seen = await until(() => second.fleet.observe(A).state === "running" && second.fleet.observe(A), {
    what: "it to run",
  });
  assert.deepEqual([seen.bootId, seen.runningSince], [bootId, runningSince]);
});

test("a run whose machine's VM is gone after a crash of the host ended when the node was last alive", async () => {
  for (const isFileLost of [false, true]) {
    await using directory = await temporaryDirectory();
    const first = await startTestNode(directory.path);
    const { bootId, runningSince } = await first.want(A, 1, "running");
    await first.fleet.release();
    await first.deps.runs.saved();
    const machine = join(directory.path, "machines", A);
    // With the machine's directory its journal is gone too.
    const lost = isFileLost ? machine : join(machine, "boots", bootDirectoryName(bootId ?? ""), "vm.json");
    await rm(lost, { recursive: true });
    const lastAliveAt = (runningSince ?? 0) + 1;
    const second = await startTestNode(directory.path, { lastAliveAt: lastAliveAt + 0.5 });
    const run = await ended(second, bootId);
    assert.deepEqual([run.endedAt, run.cause], [lastAliveAt, "unseen"]);
  }
});

test("a run of a resumed guest begins before its agent answers, and ends with its VM if it never does", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(100) });
  // Its clock is hurried, and the host may be slow.
  const more = { env: { FAKE_RESUME_SILENT: "1" }, waitMs: 3_000_000 };
  await node.want(A, 1, "running", more);
  assert.notEqual((await node.want(A, 2, "stopped", { ...more, keepsMemory: true })).suspendedAt, null);
  const askedAt = node.clock.now();
  const { bootId } = await node.want(A, 3, "running", more);
  const [, silent, booted] = withoutSequence(all(node.deps.runs).toSorted((a, b) => a.startedAt - b.startedAt));
  assert.deepEqual([silent?.cause, booted?.bootId, booted?.endedAt], ["unresponsive", bootId, null]);
  const { startedAt = 0, endedAt = null } = silent ?? {};
  // Its agent had 60 s by the node's clock.
  assert.ok(startedAt >= askedAt && (endedAt ?? 0) - startedAt >= 450, `from ${startedAt} to ${endedAt}`);
  assert.match(node.events.map(({ message }) => message).join("\n"), /its guest agent did not answer/);
});

test("a run whose guest agent is silent ends when the VM is ended, not when it last answered", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId, runningSince } = await first.want(A, 1, "running");
  await first.fleet.release();
  await silence(directory.path, bootId);
  const restartedAt = Date.now();
  const second = await startTestNode(directory.path, {
    clock: hurriedClock(100),
    lastAliveAt: (runningSince ?? 0) + 1,
  });
  const run = await ended(second, bootId);
  assert.equal(run.cause, "unresponsive");
  // Three attempts to reach it, of 15 s each by the node's clock.
  assert.ok((run.endedAt ?? 0) - restartedAt >= 400, `ended ${(run.endedAt ?? 0) - restartedAt} ms after the restart`);
});
