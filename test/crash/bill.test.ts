/**
 * Bills of real machines while every process is killed: VMMs, node agent, server, PostgreSQL and the
 * supervisor.
 *
 * An observer records when each VMM process ran. Afterwards each billed run is compared with the lifetime of
 * its VMM, within the bounds of docs/billing.md, and every answer about usage and money with the sum of the
 * runs, exactly.
 *
 *     FLOTILLA_TEST_BILLED_MACHINES=10 FLOTILLA_TEST_BILLED_SECONDS=200 npm test -- test/crash/bill.test.ts
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { InvoiceCost, InvoiceInterval } from "@flotilla/contract/billing";
import type { Static } from "@flotilla/contract/schema";
import {
  childOf,
  type DataDirectory,
  makeDirectory,
  processesOf,
  type RunningUp,
  startUp,
} from "../../cli/test/run-up.ts";
import { Client } from "../../server/test/support/client.ts";
import { endVmm } from "../support/flotilla.ts";
import { putTemplates } from "../support/kept-templates.ts";
import { monotonic, pause, until } from "../support/until.ts";
import { LifetimeObserver, type VmmLifetime } from "../support/vmm-lifetimes.ts";

const MACHINES = Number(process.env["FLOTILLA_TEST_BILLED_MACHINES"] ?? 2);
const CHAOS_MS = Number(process.env["FLOTILLA_TEST_BILLED_SECONDS"] ?? 0) * 1000;
/**
 * From the end of a VMM until its agent notices: it looks once a second when the control channel says
 * nothing.
 */
const NOTICED_MS = 1_000;
/** How old the stamp of the last agent may be (node/src/machines/alive-file.ts). */
const STAMP_MS = 5_000;
/** The time of adopting a VM, in which its end is found as if no agent ran. */
const ADOPTION_MS = 15_000;
/** One micro for each millisecond of a processor, and for each of a GiB. */
const PRICES = { rateCpuHourMicros: 3_600_000, rateMemoryGbHourMicros: 3_600_000 };
const HOUR_MS = 3_600_000;

const skip = process.getuid?.() === 0 ? false : "needs root: the qemu driver runs every machine as its own user";

type Victim = "vmm" | "node" | "server" | "database" | "supervisor";
type Interval = Static<typeof InvoiceInterval>;

/** A command or a start that was answered: the machine ran at some time between. */
interface Proof {
  readonly machineId: string;
  readonly from: number;
  readonly to: number;
}

/** `flotilla up` that may be killed and started again on its directory. */
class Fleet {
  readonly #t: TestContext;
  readonly #directory: DataDirectory;
  #up: RunningUp | null = null;
  #tenantKey = "";

  constructor(t: TestContext) {
    this.#t = t;
    this.#directory = makeDirectory(t);
  }

  get nodeDirectory(): string {
    return realpathSync(join(this.#directory.path, "node"));
  }

  /** Its machines are restored from templates that other tests have made, where there are some. */
  async putTemplates(): Promise<void> {
    await putTemplates(join(this.#directory.path, "node"), 0);
  }

  async start(): Promise<void> {
    this.#up = await startUp(this.#t, this.#directory, undefined, {
      FLOTILLA_DRIVER: "qemu",
      FLOTILLA_ACCELERATOR: "tcg",
      FLOTILLA_CACHE_DIR: process.env["FLOTILLA_CACHE_DIR"] ?? join(homedir(), ".cache/flotilla"),
    });
  }

  get admin(): Client {
    const key = readFileSync(join(this.#directory.path, "admin.key"), "utf8").trim();
    return new Client(this.#up?.url ?? "", key);
  }

  /** Client of the tenant that is billed. */
  get client(): Client {
    return this.admin.withKey(this.#tenantKey);
  }

  async makeTenant(): Promise<void> {
    const plan = await this.admin.post("/v1/plans", { name: "billed", ...PRICES });
    const tenant = await this.admin.post("/v1/tenants", { name: "billed", planId: plan.json.id });
    this.#tenantKey = (await this.admin.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key;
  }

  /**
   * Resolves when the victim is dead and, if it is the supervisor, runs again. The supervisor restarts the
   * others.
   */
  async kill(victim: Exclude<Victim, "vmm">): Promise<void> {
    const pid = this.#pidOf(victim);
    if (pid !== null) process.kill(pid, "SIGKILL");
    if (victim !== "supervisor") return;
    await this.#up?.ran;
    const programs = (): boolean => processesOf(this.#directory.path).every((line) => !line.includes("src/main.ts"));
    await until(programs, { what: "server and node to end after their supervisor", deadlineMs: 60_000, everyMs: 50 });
    await this.start();
  }

  #pidOf(victim: Exclude<Victim, "vmm">): number | null {
    const pid = this.#up?.pid ?? 0;
    if (victim === "supervisor") return pid;
    if (victim !== "database") return childOf(pid, `${victim}/src/main.ts`);
    const file = readFileSync(join(this.#directory.path, "postgres/data/postmaster.pid"), "utf8");
    return Number(file.split("\n")[0]);
  }
}

class Chaos {
  readonly kills: Record<Victim, number> = { vmm: 0, node: 0, server: 0, database: 0, supervisor: 0 };
  readonly proofs: Proof[] = [];
  refused = 0;
  readonly #fleet: Fleet;
  readonly #observer: LifetimeObserver;
  #isOver = false;

  constructor(fleet: Fleet, observer: LifetimeObserver) {
    this.#fleet = fleet;
    this.#observer = observer;
  }

  /** Starts, uses and stops one machine, whatever the answers. */
  async use(machineId: string): Promise<void> {
    while (!this.#isOver) {
      for (const verb of ["start", "exec", "stop"] as const) {
        const from = Date.now();
        const body = verb === "exec" ? { command: ["true"], timeoutSeconds: 20 } : undefined;
        const answer = await this.#fleet.client
          .post(`/v1/machines/${machineId}/${verb}`, body, { signal: AbortSignal.timeout(60_000) })
          .catch(() => null);
        if (answer?.status !== 200) this.refused += 1;
        else if (verb !== "stop") this.proofs.push({ machineId, from, to: Date.now() });
        await pause(randomInt(answer?.status === 200 ? 1_000 : 300));
      }
    }
  }

  /**
   * Kills each kind at least once, then at random until the time is over. A machine answers between two
   * kills.
   */
  async kill(): Promise<void> {
    const first: Victim[] = ["vmm", "node", "database", "server", "supervisor"];
    const later: Victim[] = ["vmm", "vmm", "vmm", "node", "server", "database", "supervisor"];
    const endsAt = monotonic() + CHAOS_MS;
    for (let at = 0; at < first.length || monotonic() < endsAt; at += 1) {
      const answered = this.proofs.length;
      await until(() => this.proofs.length > answered, {
        what: "a machine to answer",
        deadlineMs: 60_000,
        everyMs: 20,
      });
      await pause(randomInt(1_000));
      const victim = first[at] ?? later[randomInt(later.length)] ?? "vmm";
      if (victim === "vmm") await this.#killVmm();
      else await this.#fleet.kill(victim);
      this.kills[victim] += 1;
    }
    this.#isOver = true;
  }

  /** A user may stop the machine before the signal is sent: then it was not a kill. */
  async #killVmm(): Promise<void> {
    const isKilled = (): boolean => {
      const running = [...this.#observer.vmms.values()].filter((vmm) => vmm.endedAt === null && vmm.machineId !== null);
      const victim = running[randomInt(running.length || 1)];
      return victim !== undefined && endVmm(victim.pid);
    };
    await until(isKilled, { what: "a machine's VMM", deadlineMs: 60_000, everyMs: 20 });
  }
}

test("what real machines are billed is what their VMMs ran, while every process is killed", { skip }, async (t) => {
  const fleet = new Fleet(t);
  await fleet.putTemplates();
  await fleet.start();
  using observer = new LifetimeObserver(fleet.nodeDirectory);
  await fleet.makeTenant();
  const create = async (): Promise<string> => {
    const body = {
      source: { type: "image", reference: "local/busybox" },
      resources: { cpus: 1, memoryMb: 128, diskGb: 1 },
    };
    const made = await fleet.client.post("/v1/machines", body);
    assert.equal(made.status, 201, made.text);
    return made.json.id;
  };
  const machines = await Promise.all(Array.from({ length: MACHINES }, create));
  try {
    const chaos = new Chaos(fleet, observer);
    await Promise.all([chaos.kill(), ...machines.map((id) => chaos.use(id))]);
    const intervals = await untilSettled(fleet, observer, machines);
    const compared = compareRuns(intervals, observer);
    assertBilledWhenUsed(chaos.proofs, intervals, observer);
    await assertSums(fleet, machines, intervals);
    const kills = Object.entries(chaos.kills).map(([victim, count]) => `${count} ${victim}`);
    process.stdout.write(
      `${compared.runs} runs of ${machines.length} machines, ${compared.billedMs} ms billed, among kills of ${kills.join(", ")}; ` +
        `${chaos.proofs.length} calls answered and ${chaos.refused} refused; ends at most ${compared.lateMs} ms late and ` +
        `${compared.earlyMs} ms early, ${compared.unseen} of them while no agent ran; looks at most ${observer.gapMs} ms apart\n`,
    );
    assert.ok(compared.runs >= MACHINES && chaos.proofs.length >= MACHINES, "too little happened to prove anything");
  } finally {
    for (const { pid, endedAt } of observer.vmms.values()) if (endedAt === null) endVmm(pid);
  }
});

/** Stops the machines and waits until no run is open. Returns the intervals of runs. */
async function untilSettled(
  fleet: Fleet,
  observer: LifetimeObserver,
  machines: readonly string[],
): Promise<readonly Interval[]> {
  const stopped = machines.map((id) =>
    until(async () => (await fleet.client.post(`/v1/machines/${id}/stop`)).status === 200, {
      what: `machine ${id} to stop`,
      deadlineMs: 60_000,
      everyMs: 200,
    }),
  );
  await Promise.all(stopped);
  const isSettled = async (): Promise<readonly Interval[] | false> => {
    const intervals = await intervalsOf(fleet.client);
    const open = intervals.filter(({ endedAt }) => endedAt === null).map(({ bootId }) => bootId);
    assert.deepEqual(open, [], "open runs");
    const used = [...observer.vmms.values()].filter(({ endedAt, machineId }) => endedAt === null && machineId !== null);
    assert.deepEqual(used, [], "VMMs of machines that run");
    return intervals;
  };
  return await until(isSettled, { what: "every run to be recorded", deadlineMs: 60_000, everyMs: 200 });
}

/** The intervals of runs of all months, without those of disks. */
async function intervalsOf(client: Client): Promise<readonly Interval[]> {
  const found = new Map<number, Interval>();
  for (const { id } of (await client.get("/v1/billing/invoices")).json as { id: string }[]) {
    for (let cursor = 0; ; ) {
      const page = (await client.get(`/v1/billing/invoices/${id}/intervals?cursor=${cursor}`)).json as Interval[];
      for (const interval of page) if (interval.bootId !== null) found.set(interval.id, interval);
      cursor = page.at(-1)?.id ?? 0;
      if (cursor === 0) break;
    }
  }
  return [...found.values()];
}

const uptimeOf = (intervals: readonly Interval[]): readonly Interval[] =>
  intervals.filter(({ meter }) => meter === "uptime");
const msOf = ({ startedAt, endedAt }: Interval): number => Date.parse(endedAt ?? startedAt) - Date.parse(startedAt);
const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

/** Compares each run with its VMM. */
function compareRuns(intervals: readonly Interval[], observer: LifetimeObserver) {
  const runs = uptimeOf(intervals);
  const slackMs = 50 + 2 * observer.gapMs;
  const late: number[] = [0];
  const early: number[] = [0];
  let unseen = 0;
  assert.equal(new Set(runs.map(({ bootId }) => bootId)).size, runs.length, "a boot has one run");
  for (const run of runs) {
    const vmm = observer.vmms.get(run.bootId ?? "");
    assert.ok(vmm !== undefined, `no VMM of ${run.bootId} was seen, which is billed for ${msOf(run)} ms`);
    assert.equal(vmm.machineId, run.machineId);
    const [startedAt, endedAt] = [Date.parse(run.startedAt), Date.parse(run.endedAt ?? "")];
    const vmmEndedAt = vmm.endedAt ?? Number.NaN;
    const said = JSON.stringify({ run, vmm, agents: observer.agents, slackMs });
    assert.ok(startedAt >= vmm.startedAt - slackMs, `billed before its VMM ran: ${said}`);
    assert.ok(endedAt <= Math.max(startedAt, vmmEndedAt + NOTICED_MS + slackMs), `billed after its VMM ended: ${said}`);
    if (endedAt >= vmmEndedAt - slackMs) late.push(endedAt - vmmEndedAt);
    else {
      const stampedAt = lastStampBefore(vmm, observer, NOTICED_MS + slackMs);
      assert.ok(stampedAt !== null, `its end is too early, although an agent saw it: ${said}`);
      assert.ok(endedAt >= Math.max(startedAt, stampedAt - STAMP_MS - slackMs), `its end is too early: ${said}`);
      unseen += 1;
      early.push(vmmEndedAt - endedAt);
    }
  }
  return {
    runs: runs.length,
    billedMs: sum(runs.map(msOf)),
    lateMs: Math.max(...late),
    earlyMs: Math.max(...early),
    unseen,
  };
}

/**
 * When the agent before the one that found the VMM's end had ended. null: the VMM ended while the agent that
 * had started it, or adopted it, ran, and that ran for `noticedMs` longer.
 */
function lastStampBefore(vmm: VmmLifetime, { agents }: LifetimeObserver, noticedMs: number): number | null {
  const endedAt = vmm.endedAt ?? Number.NaN;
  const before = agents.filter(({ startedAt }) => startedAt <= endedAt);
  const last = before.at(-1);
  if (last === undefined) return null;
  if (last.endedAt !== null && last.endedAt <= endedAt + noticedMs) return last.endedAt;
  const isAdopting = vmm.startedAt < last.startedAt && endedAt < last.startedAt + ADOPTION_MS;
  return isAdopting ? (before.at(-2)?.endedAt ?? null) : null;
}

/**
 * A machine that answered was billed then, or until the last time at which its agent noted that it was alive.
 */
function assertBilledWhenUsed(
  proofs: readonly Proof[],
  intervals: readonly Interval[],
  { gapMs }: LifetimeObserver,
): void {
  const runs = uptimeOf(intervals);
  for (const proof of proofs) {
    const isBilled = runs.some(
      ({ machineId, startedAt, endedAt }) =>
        machineId === proof.machineId &&
        Date.parse(startedAt) <= proof.to &&
        Date.parse(endedAt ?? "") >= proof.from - STAMP_MS - 2 * gapMs,
    );
    const own = runs.filter(({ machineId }) => machineId === proof.machineId);
    assert.ok(isBilled, `it answered and is not billed for it: ${JSON.stringify({ proof, own })}`);
  }
}

/** Every answer about usage and money is the sum of the same runs. */
async function assertSums(fleet: Fleet, machines: readonly string[], intervals: readonly Interval[]): Promise<void> {
  const { client } = fleet;
  const uptimeMs = (id: string): number =>
    sum(
      uptimeOf(intervals)
        .filter((run) => run.machineId === id)
        .map(msOf),
    );
  const amount = (meter: string): number =>
    sum(intervals.filter((one) => one.meter === meter).map((one) => one.quantity * msOf(one)));
  const from = new Date(Math.min(...intervals.map(({ startedAt }) => Date.parse(startedAt)))).toISOString();
  const usage = (await client.get(`/v1/usage?from=${encodeURIComponent(from)}`)).json;
  assert.equal(usage.totalUptimeSeconds, Math.floor(amount("uptime") / 1000));
  assert.equal(usage.cpuHours, amount("cpu") / HOUR_MS);
  const invoices = (await client.get("/v1/billing/invoices")).json as { id: string; totalMicros: number }[];
  if (invoices.length > 1) return;
  const [{ id, totalMicros } = { id: "", totalMicros: 0 }] = invoices;
  assert.equal(totalMicros, amount("cpu") + Math.floor(amount("memory") / 1024));
  const costs = (await client.get(`/v1/billing/invoices/${id}/costs?by=machine`)).json as InvoiceCost[];
  for (const machine of machines) {
    const cost = costs.find(({ group, meter }) => group === machine && meter === "uptime");
    assert.equal(Number(cost?.amount ?? 0), uptimeMs(machine));
    const own = (await client.get(`/v1/machines/${machine}/usage`)).json;
    assert.equal(own.usage.totalUptimeSeconds, Math.floor(uptimeMs(machine) / 1000));
  }
}
