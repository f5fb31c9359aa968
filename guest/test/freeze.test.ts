/**
 * The moment in which a machine is copied: every program stops, and in the copy none runs before that is
 * configured as another machine.
 */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { test } from "node:test";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest, GuestConfiguration } from "@flotilla/node/guest/guest";
import { type AgentOptions, outcome, processesWith, request, startAgent, type TestAgent, until } from "./agent.ts";
import { Line } from "./line.ts";

const CONFIGURATION: GuestConfiguration = {
  hostname: "one",
  machineId: "0".repeat(32),
  now: Date.now(),
  entropy: randomBytes(64),
  env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
  workdir: "/",
  user: "",
  rootDevice: null,
  rootBytes: null,
  nameservers: [],
  address: null,
};

async function withAgent(
  body: (agent: TestAgent) => Promise<void>,
  { log = "", ...options }: AgentOptions & { readonly log?: string } = {},
): Promise<void> {
  const agent = startAgent({ hasCgroup: true, ...options });
  try {
    await body(agent);
  } finally {
    const code = await agent.end();
    assert.equal(agent.log(), log);
    assert.equal(code, 0);
  }
}

const connect = (agent: TestAgent, isClone = false): Promise<Guest> =>
  connectGuest(new Line(agent.socket), { helloTimeoutMs: 20_000, keepsCommands: true, isClone });

async function configured(agent: TestAgent): Promise<Guest> {
  const guest = await connect(agent);
  await guest.configure(CONFIGURATION);
  return guest;
}

const freeze = async (guest: Guest): Promise<void> => {
  assert(guest.freeze);
  await guest.freeze();
};

const thaw = async (guest: Guest): Promise<void> => {
  assert(guest.thaw);
  await guest.thaw();
};

/** How much of the processor a process has used, in clock ticks. */
function ticksOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

const groupOf = (pid: number): string => {
  const path = /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1] ?? "";
  return `/sys/fs/cgroup/unified${path}`;
};

const isFrozen = (pid: number): boolean =>
  readFileSync(join(groupOf(pid), "cgroup.events"), "utf8").includes("frozen 1");

test("every program stops until it may run again, and its output continues without a gap", async (context) => {
  await withAgent(async (agent) => {
    if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
    const guest = await configured(agent);
    const script = "i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i + 1)); done";
    const counting = guest.exec(request(["sh", "-c", script]));
    const ended = outcome(counting);
    const pid = await counting.pid;
    for (let round = 0; round < 5; round += 1) {
      await freeze(guest);
      assert(isFrozen(pid));
      await thaw(guest);
      assert(!isFrozen(pid));
    }
    const { stdout, exitCode } = await ended;
    assert.equal(exitCode, 0);
    assert.equal(stdout, `${Array.from({ length: 30_000 }, (_, at) => at).join("\n")}\n`);
  });
});

test("what is asked of a stopped guest waits, and is done when it runs again", async (context) => {
  await withAgent(async (agent) => {
    if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
    const guest = await configured(agent);
    await freeze(guest);
    const echoed = outcome(guest.exec(request(["echo", "later"])));
    const pinged = guest.ping();
    await thaw(guest);
    await pinged;
    assert.equal((await echoed).stdout, "later\n");
  });
});

test("a guest that was never configured, and one that is stopped already, is not stopped", async (context) => {
  await withAgent(async (agent) => {
    if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
    const guest = await connect(agent);
    await assert.rejects(freeze(guest), /cannot stop the machine's programs/);
    await guest.configure(CONFIGURATION);
    await assert.rejects(thaw(guest), /run already/);
    await freeze(guest);
    await assert.rejects(freeze(guest), /stopped already/);
    await thaw(guest);
    await guest.ping();
  });
});

test("the programs run again by themselves, and the host learns that its copy is of no use", async (context) => {
  const log = "flotilla agent: the host did not let the programs run again in time; they do\n";
  await withAgent(
    async (agent) => {
      if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
      const guest = await configured(agent);
      const exec = guest.exec(request(["sh", "-c", "while :; do :; done"]));
      const pid = await exec.pid;
      await freeze(guest);
      await until(() => !isFrozen(pid));
      await assert.rejects(thaw(guest), /run already/);
      exec.kill();
      await exec.exit;
    },
    { thawMs: 50, log },
  );
});

test("the next host of the machine lets the programs run again", async (context) => {
  await withAgent(async (agent) => {
    if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
    const guest = await configured(agent);
    // A command that the next host may resume outlives this one.
    const exec = guest.exec({ ...request(["sleep", "1000"]), resumeKey: randomBytes(16).toString("hex") });
    exec.exit.catch(() => undefined);
    const pid = await exec.pid;
    await freeze(guest);
    guest.close();
    await connect(agent);
    assert(!isFrozen(pid));
  });
});

test("a group that a program has stopped itself stays stopped", async (context) => {
  await withAgent(async (agent) => {
    if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
    const guest = await configured(agent);
    const exec = guest.exec(request(["sleep", "1000"]));
    const own = join(groupOf(await exec.pid), "..", "own");
    mkdirSync(own);
    try {
      writeFileSync(join(own, "cgroup.freeze"), "1");
      await freeze(guest);
      await thaw(guest);
      assert.equal(readFileSync(join(own, "cgroup.freeze"), "utf8"), "1\n");
    } finally {
      rmdirSync(own);
    }
    exec.kill();
    await exec.exit;
  });
});

test("in a copy no program runs before that is another machine; then all run on, without their callers", async (context) => {
  await withAgent(
    async (agent) => {
      if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
      const guest = await configured(agent);
      const marker = `marker-${randomBytes(8).toString("hex")}`;
      const script = `while :; do echo ${marker}; done`;
      // Its output is not read, and it would block.
      const writing = guest.exec(request(["sh", "-c", script]));
      const terminal = guest.exec(request(["sh", "-c", script], { terminal: { cols: 80, rows: 24 }, hasStdin: true }));
      for (const exec of [writing, terminal]) exec.exit.catch(() => undefined);
      const pids = [await writing.pid, await terminal.pid];
      await freeze(guest);
      guest.close();
      const copy = await connect(agent, true);
      const before = pids.map(ticksOf);
      await copy.ping();
      assert.deepEqual(pids.map(isFrozen), [true, true]);
      assert.deepEqual(pids.map(ticksOf), before);
      await copy.configure({ ...CONFIGURATION, hostname: "two", isClone: true });
      assert.deepEqual(pids.map(isFrozen), [false, false]);
      await until(() => pids.every((pid, at) => ticksOf(pid) > (before[at] ?? 0) + 10));
      assert.equal((await outcome(copy.exec(request(["echo", "new"])))).stdout, "new\n");
      assert.equal(processesWith(marker), 2);
    },
    // It must not run again by itself.
    { thawMs: 100_000 },
  );
});

test("a copy whose programs run already does not become another machine", async (context) => {
  await withAgent(async (agent) => {
    if (!agent.hasCgroup) return context.skip("this host has no control groups of version 2");
    const guest = await configured(agent);
    guest.close();
    const copy = await connect(agent, true);
    await assert.rejects(copy.configure({ ...CONFIGURATION, isClone: true }), /find the programs .* stopped/);
  });
});
