/**
 * What an agent reports of processes that the kernel killed for lack of memory, by what the kernel logs.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, constants, openSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest, GuestKilled } from "@flotilla/node/guest/guest";
import { startAgent, type TestAgent, until } from "./agent.ts";
import { Line } from "./line.ts";
import { makeDirectory } from "./shared-agent.ts";

const directory = makeDirectory(join(tmpdir(), "flotilla-killed-test-"));
const MINUTE = 60_000;
let pipes = 0;

/** A record as Linux 6.1 logs it; those of programs have another facility, so their priority is above 7. */
const killed = (program: string, { priority = 3, what = "Out of memory" } = {}): string =>
  `${priority},812,99000123,-;${what}: Killed process 341 (${program}) total-vm:262144kB, anon-rss:240000kB, file-rss:0kB, ` +
  "shmem-rss:0kB, UID:0 pgtables:520kB oom_score_adj:0\n";

interface Machine {
  readonly agent: TestAgent;
  readonly reports: GuestKilled[];
  log(...records: readonly string[]): void;
  connect(): Promise<Guest>;
  /** The host has read the report. */
  pass(): void;
}

/** An agent with a kernel's log. Minutes pass when the test says so. */
function makeMachine(t: TestContext): Machine {
  const path = join(directory, `kernel-log-${(pipes += 1)}`);
  assert.equal(spawnSync("mkfifo", [path]).status, 0);
  const pipe = openSync(path, constants.O_RDWR);
  const agent = startAgent({ kernelLogPath: path });
  t.after(async () => {
    assert.equal(await agent.end(), 0);
    closeSync(pipe);
    assert.equal(agent.log(), "");
  });
  const minutes = new Set<() => void>();
  const timer: Clock["timer"] = (ms, callback) => {
    if (ms !== MINUTE) return systemClock.timer(ms, callback);
    minutes.add(callback);
    return { cancel: () => void minutes.delete(callback) };
  };
  const reports: GuestKilled[] = [];
  return {
    agent,
    reports,
    log: (...records) => void writeSync(pipe, records.join("")),
    connect: async () => {
      const line = new Line(agent.socket);
      const guest = await connectGuest(line, { helloTimeoutMs: 10_000, clock: { ...systemClock, timer } });
      guest.onKilled?.((each) => reports.push(each));
      return guest;
    },
    pass: () => {
      for (const callback of minutes) callback();
      minutes.clear();
    },
  };
}

const configure = (guest: Guest): Promise<void> =>
  guest.configure({
    ...{
      hostname: "m",
      machineId: "0".repeat(32),
      now: Date.now(),
      entropy: new Uint8Array(64),
      env: {},
      workdir: "/",
    },
    ...{ user: "", rootDevice: null, rootBytes: null, nameservers: [], address: null },
  });

test("the last killed program is named at once, and later ones are counted until the host has read the report", async (t) => {
  const { reports, log, connect, pass } = makeMachine(t);
  await configure(await connect());
  log(killed("python3"));
  await until(() => reports.length === 1);
  for (let count = 1; count <= 40; count += 1) log(killed(`hog-${count}`, { what: "Memory cgroup out of memory" }));
  pass();
  await until(() => reports.length > 1);
  pass();
  await until(() => reports.reduce((sum, { count }) => sum + count, 0) === 41);
  assert.deepEqual(reports[0], { program: "python3", count: 1 });
  assert.equal(reports.at(-1)?.program, "hog-40");
});

test("names of every kind are found, and what is not a kill by the kernel is left out", async (t) => {
  const { reports, log, connect, pass } = makeMachine(t);
  await configure(await connect());
  const names = ["a) total-vm:1", "(sd-pam)", "tmux: server", "gr\\xc3\\xb6\\xc3\\x9fe", ""];
  const others = [
    killed("forged", { priority: 12 }),
    killed("other", { what: "Out of patience" }),
    "3,1,2,-;a[12]: segfault at 0 ip 00 sp 00 error 4\n SUBSYSTEM=memory\n",
    `3,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,task=python3,pid=341,uid=0\n`,
    "3,1,2,-;Out of memory: Killed process 7 (cut\n",
    "no record\n",
    ";\n",
    "\n",
    `${"x".repeat(4_000)}\n`,
  ];
  for (const [at, name] of names.entries()) {
    log(...others, killed(name), ...others);
    await until(() => reports.length === at + 1);
    pass();
  }
  assert.deepEqual(
    reports,
    names.map((program) => ({ program, count: 1 })),
  );
});

test("kills are reported to the next host, and none of a guest that is not a machine yet", async (t) => {
  const { reports, log, connect, pass } = makeMachine(t);
  const first = await connect();
  log(killed("of-nobody"));
  await first.sync();
  await configure(first);
  log(killed("read"));
  await until(() => reports.length === 1);
  log(killed("meanwhile"));
  await first.sync();
  first.close();
  await connect();
  await until(() => reports.length === 2);
  assert.deepEqual(reports, [
    { program: "read", count: 1 },
    { program: "meanwhile", count: 1 },
  ]);
  pass();
});
