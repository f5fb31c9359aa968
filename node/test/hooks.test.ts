/**
 * The hooks of machines, with the scripted driver: when each runs, what follows its failure, and when none
 * runs.
 */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import type { GuestHook, MachineSpec } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { FakeGuest } from "../src/driver/fake/guest.ts";
import {
  hurriedClock,
  machineIdOf,
  machineOf,
  specOf,
  startTestNode,
  type TestNode,
  temporaryDirectory,
  type Want,
} from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");
const P = `point-${"1".repeat(32)}`;
const REQUEST = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false };
const HOUR_MS = 3_600_000;

const line = (text: string, timeoutMs = 10_000): GuestHook => ({ command: ["sh", "-c", text], timeoutMs });
const withHooks = (hooks: MachineSpec["hooks"], more: Want = {}): Want => ({
  ...more,
  spec: { ...more.spec, ...(hooks !== undefined && { hooks }) },
});

const journalOf = async (directory: string, machineId: string) =>
  JSON.parse(await readFile(join(directory, "machines", machineId, "journal.json"), "utf8"));

async function run(node: TestNode, machineId: string, ...argv: string[]): Promise<string> {
  const exec = machineOf(node, machineId).access.guest?.exec({ argv, ...REQUEST });
  assert.ok(exec !== undefined, "the machine runs");
  exec.stderr.resume();
  const chunks: Buffer[] = await exec.stdout.toArray();
  await exec.exit;
  return Buffer.concat(chunks).toString();
}

/** What guests were asked to do since, in order: the line of each command, `shut down`, and `sync`. */
function watchGuests(t: TestContext): readonly string[] {
  const seen: string[] = [];
  const { exec, shutDown, sync } = FakeGuest.prototype;
  t.mock.method(FakeGuest.prototype, "exec", function (this: FakeGuest, request: Parameters<typeof exec>[0]) {
    seen.push(request.argv.at(-1) ?? "");
    return exec.call(this, request);
  });
  t.mock.method(FakeGuest.prototype, "shutDown", function (this: FakeGuest) {
    seen.push("shut down");
    return shutDown.call(this);
  });
  t.mock.method(FakeGuest.prototype, "sync", function (this: FakeGuest) {
    seen.push("sync");
    return sync.call(this);
  });
  return seen;
}

const hookEvents = (node: TestNode): readonly string[] =>
  node.events.flatMap(({ message }) => (/^the \w+ hook /.test(message) ? [message] : []));

async function makePoint(node: TestNode): Promise<void> {
  await node.want(A, 1, "running");
  await node.branches.make({ pointId: P, machineId: A, hasMemory: true });
}

const startClone = (node: TestNode, hooks: MachineSpec["hooks"], hasMemory = true, env = {}) =>
  node.want(B, 1, "running", withHooks(hooks, { env, spec: { hostname: "clone", point: { pointId: P, hasMemory } } }));

test("a fork hook runs in a clone that is itself, before its start is answered, and in nothing else", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await makePoint(node);
  const seen = watchGuests(t);
  const hooks = { fork: line("hostname >/who"), resume: line("true") };
  assert.equal((await startClone(node, hooks)).state, "running");
  assert.equal(await run(node, B, "cat", "/who"), "clone\n");
  assert.equal(await run(node, A, "cat", "/who"), "", "the source has no such file");
  const again = { spec: { hostname: "clone", point: { pointId: P, hasMemory: true }, hooks } };
  await node.want(B, 2, "stopped", again);
  assert.equal((await node.want(B, 3, "running", again)).state, "running");
  assert.deepEqual(
    seen.filter((argument) => argument === "hostname >/who" || argument === "true"),
    ["hostname >/who"],
  );
  assert.deepEqual(hookEvents(node), []);
});

test("a machine that boots from the disk of a point runs no fork hook", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await makePoint(node);
  const seen = watchGuests(t);
  assert.equal((await startClone(node, { fork: line("exit 1") }, false)).state, "running");
  assert.deepEqual(seen, []);
});

for (const [what, hook, reason, env] of [
  ["fails", line("echo one; echo two >&2; exit 3"), /its fork hook ended with exit code 3: .*two/, {}],
  ["takes too long", line("echo begun; sleep 100", 200), /its fork hook did not end within 0\.2 s: begun$/, {}],
  ["names none", { command: ["missing"], timeoutMs: 1_000 }, /exit code 255: .*'missing' not found/, {}],
  ["is not run", line("true"), /its fork hook was not run to its end \(the guest already/, { FAKE_EXECS_MAX: "0" }],
] as const satisfies readonly (readonly [string, GuestHook, RegExp, Record<string, string>])[]) {
  test(`a clone whose fork hook ${what} fails with the reason, and its VM is gone`, async () => {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    await makePoint(node);
    const observed = await startClone(node, { fork: hook }, true, env);
    assert.equal(observed.state, "failed");
    assert.match(observed.reason ?? "", /^it could not be started from its point: /);
    assert.match(observed.reason ?? "", reason);
    const found = await node.driver.find();
    assert.deepEqual(
      found.map(({ startedFor }) => startedFor),
      [A],
    );
    assert.deepEqual(hookEvents(node), []);
  });
}

test("what a hook prints is shown as one line without control characters, and only its end", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await makePoint(node);
  const text = `yes ${"x".repeat(70)}; echo "\x1b[31mlast\x1b[0m\tword"; exit 1`;
  const { reason } = await startClone(node, { fork: line(text) });
  assert.match(reason ?? "", /: [x ]{450,490}\[31mlast \[0m word$/);
});

test("a clone is unconfirmed while its fork hook runs, and holds no place of others that boot", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { bootsAtOnceMax: 1 });
  await makePoint(node);
  const seen = watchGuests(t);
  const starting = startClone(node, { fork: line("sleep 1000", 60_000) });
  await until(() => seen.includes("sleep 1000"), { what: "the hook" });
  assert.equal((await journalOf(directory.path, B)).boot.isUnconfirmed, true);
  assert.equal(machineOf(node, B).access.guest, null, "it takes no commands yet");
  assert.equal((await node.want(machineIdOf("c"), 1, "running")).state, "running");
  // A stop ends the hook.
  assert.equal((await node.want(B, 2, "stopped")).state, "stopped");
  assert.equal((await starting).state, "stopped");
});

test("a resume hook runs once for each resume, before the start is answered", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const more = withHooks({ resume: line("echo resumed >>/resumed") });
  await node.want(A, 1, "running", more);
  const seen = watchGuests(t);
  for (const generation of [2, 4]) {
    await node.want(A, generation, "stopped", { ...more, keepsMemory: true });
    assert.equal((await node.want(A, generation + 1, "running", more)).state, "running");
  }
  assert.equal(await run(node, A, "cat", "/resumed"), "resumed\nresumed\n");
  await node.want(A, 6, "stopped", more);
  await node.want(A, 7, "running", more);
  assert.equal(seen.filter((argument) => argument === "echo resumed >>/resumed").length, 2);
  assert.deepEqual(hookEvents(node), []);
});

test("a machine whose resume hook fails or takes too long runs on, with an event", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  let generation = 0;
  for (const hook of [line("echo no >&2; exit 4"), line("sleep 1000", 200)]) {
    const more = withHooks({ resume: hook });
    await node.want(A, ++generation, "running", more);
    await node.want(A, ++generation, "stopped", { ...more, keepsMemory: true });
    const { state, isResumed } = await node.want(A, ++generation, "running", more);
    assert.deepEqual([state, isResumed], ["running", true]);
  }
  assert.deepEqual(hookEvents(node), [
    "the resume hook ended with exit code 4: no",
    "the resume hook did not end within 0.2 s",
  ]);
});

test("a machine that is to stop while its resume hook runs is stopped at once, with its memory if that is kept", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const more = withHooks({ resume: line("sleep 1000", 60_000) });
  await node.want(A, 1, "running", more);
  await node.want(A, 2, "stopped", { ...more, keepsMemory: true });
  const seen = watchGuests(t);
  const starting = node.want(A, 3, "running", more);
  await until(() => seen.includes("sleep 1000"), { what: "the hook" });
  const { state, suspendedAt } = await node.want(A, 4, "stopped", { ...more, keepsMemory: true });
  assert.deepEqual([state, suspendedAt !== null], ["stopped", true]);
  await starting;
  assert.deepEqual(hookEvents(node), []);
});

test("a resume hook that an agent did not see to its end runs again", async (t) => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const more = withHooks({ resume: line("true") });
  await first.want(A, 1, "running", more);
  await first.want(A, 2, "stopped", { ...more, keepsMemory: true });
  await first.want(A, 3, "running", more);
  await until(async () => (await journalOf(directory.path, A)).boot.isHookDue === false, { what: "the hook's end" });
  await first.fleet.release();
  const journal = await journalOf(directory.path, A);
  await writeFile(
    join(directory.path, "machines", A, "journal.json"),
    JSON.stringify({ ...journal, boot: { ...journal.boot, isHookDue: true } }),
  );
  const seen = watchGuests(t);
  const second = await startTestNode(directory.path);
  await until(() => second.fleet.observe(A).state === "running", { what: "the machine" });
  assert.deepEqual(seen, ["true"]);
  await until(async () => (await journalOf(directory.path, A)).boot.isHookDue === false, { what: "the hook's end" });
  await second.fleet.release();
  await startTestNode(directory.path);
  assert.deepEqual(seen, ["true"]);
});

test("a suspend hook runs before the memory is saved, and its failure suspends the machine with an event", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const seen = watchGuests(t);
  let generation = 0;
  for (const hook of [line("echo kept >/kept"), line("echo bad; exit 5"), line("sleep 1000", 200)]) {
    const more = withHooks({ suspend: hook, stop: line("exit 1") });
    await node.want(A, ++generation, "running", more);
    const { state, suspendedAt } = await node.want(A, ++generation, "stopped", { ...more, keepsMemory: true });
    assert.deepEqual([state, suspendedAt !== null], ["stopped", true]);
  }
  await node.want(A, ++generation, "running");
  assert.deepEqual(seen, ["echo kept >/kept", "sync", "echo bad; exit 5", "sync", "sleep 1000", "sync"]);
  assert.equal(await run(node, A, "cat", "/kept"), "kept\n");
  assert.deepEqual(hookEvents(node), [
    "the suspend hook ended with exit code 5: bad",
    "the suspend hook did not end within 0.2 s",
  ]);
});

test("a machine whose memory is saved for a move runs neither a suspend nor a resume hook", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const more = withHooks({ suspend: line("exit 1"), resume: line("exit 1") });
  await node.want(A, 1, "running", more);
  const seen = watchGuests(t);
  const desired = { generation: 2, state: "stopped", keepsMemory: true, keepsCommands: true } as const;
  const wait = { waitMs: 20_000, signal: new AbortController().signal };
  const { observed } = await node.fleet.apply(A, { ...desired, spec: specOf(A, more) }, wait);
  assert.notEqual(observed.suspendedAt, null);
  assert.equal((await node.want(A, 3, "running", more)).isResumed, true);
  assert.deepEqual(seen, ["sync"]);
});

test("a stop hook runs before the guest shuts down, and its failure stops the machine with an event", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const seen = watchGuests(t);
  let generation = 0;
  for (const text of ["true", "echo bad; exit 6"]) {
    const more = withHooks({ stop: line(text), suspend: line("exit 1") });
    await node.want(A, ++generation, "running", more);
    assert.equal((await node.want(A, ++generation, "stopped", more)).state, "stopped");
  }
  const asked = seen.filter((what) => what !== "sync");
  assert.deepEqual(asked, ["true", "shut down", "echo bad; exit 6", "shut down"]);
  assert.deepEqual(hookEvents(node), ["the stop hook ended with exit code 6: bad"]);
});

test("a stop hook has half of the time of the stop, so that the guest shuts down in the rest", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(20) });
  const more = withHooks({ stop: line("sleep 1000000", 60_000) });
  await node.want(A, 1, "running", more);
  assert.equal((await node.want(A, 2, "stopped", more)).state, "stopped");
  assert.deepEqual(
    node.events.map(({ message }) => message),
    ["the stop hook did not end within 5 s"],
  );
});

test("a new VMM, a crash and a delete run no hook", async (t) => {
  await using directory = await temporaryDirectory();
  const fails = line("exit 1");
  const more = withHooks({ fork: fails, resume: fails, suspend: fails, stop: fails });
  const seen = watchGuests(t);
  let node = await startTestNode(directory.path, { program: "0" });
  const isRunning = (): boolean => node.fleet.observe(A).state === "running";
  await node.want(A, 1, "running", more);
  for (const [program, how] of [
    ["1", "live"],
    ["2", "restart"],
  ] as const) {
    await node.fleet.release();
    node = await startTestNode(directory.path, { program });
    await until(isRunning, { what: "the machine" });
    const { signal } = new AbortController();
    assert.equal((await node.replacements.replace(machineOf(node, A), how, signal)).outcome, "replaced");
    await until(isRunning, { what: "the machine" });
  }
  const { bootId } = node.fleet.observe(A);
  const crash = machineOf(node, A).access.guest?.exec({ argv: ["crash"], ...REQUEST });
  crash?.exit.catch(() => undefined);
  await until(() => isRunning() && node.fleet.observe(A).bootId !== bootId, { what: "another boot" });
  await node.want(A, 2, "absent");
  assert.ok(seen.includes("crash") && !seen.includes("exit 1"), seen.join(", "));
});

test("a host that goes down runs the hooks of what it suspends and stops, if there is time", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const hooks = { suspend: line("echo suspend"), resume: line("echo resume"), stop: line("echo stop") };
  await node.want(A, 1, "running", withHooks(hooks));
  await node.want(B, 1, "running", withHooks(hooks, { spec: { disruption: "restart" } }));
  const seen = watchGuests(t);
  const hooksSeen = (): readonly string[] => seen.filter((what) => what.startsWith("echo ")).toSorted();
  const runs = () =>
    until(() => [A, B].every((id) => node.fleet.observe(id).state === "running"), { what: "both machines" });
  await node.fleet.suspendAll(HOUR_MS, new AbortController().signal);
  assert.deepEqual(hooksSeen(), ["echo stop", "echo suspend"]);
  node.fleet.resumeAll();
  await runs();
  assert.deepEqual(hooksSeen(), ["echo resume", "echo stop", "echo suspend"]);
  // That is too soon.
  const { stopped } = await node.fleet.suspendAll(10_000, new AbortController().signal);
  assert.ok(stopped.includes(B));
  assert.deepEqual(hooksSeen(), ["echo resume", "echo stop", "echo suspend"]);
});
