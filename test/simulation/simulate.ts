/**
 * One seed: a cluster, requests of users and operators, and faults; then quiet, in which the observed state
 * must reach the desired state, and stay.
 */
import { phaseOf } from "../../server/src/machines/state.ts";
import { Cluster, SERVERS } from "./cluster.ts";
import type { RealDatabase } from "./database.ts";
import { type Fault, Faults } from "./faults.ts";
import { checkRuns, checkStep, whatIsOpen } from "./invariants.ts";
import { hasBriefState, hasRareState, nodeOfReplaced, statesMet } from "./met.ts";
import { Requests } from "./requests.ts";
import { readRows, readRuns, type Rows } from "./rows.ts";
import { Violation } from "./world.ts";

const STEP_MS_MAX = 1_500;
/**
 * In some seeds time passes between some steps, so that nodes become unreachable and deadlines pass while
 * requests and faults come.
 */
const PAUSE_MS_MAX = 40_000;
/** How many of these seeds begin with pools that are full. */
const WAITING_FIRST = 0.6;
/**
 * How long the observed state may take to reach the desired one, in virtual time. Leases, retries and most
 * deadlines are below it.
 */
const REACHES_WITHIN_MS = 12 * 60_000;
/** As long as a machine starts: longer than START_DEADLINE_MS. */
const STARTS_WITHIN_MS = 40 * 60_000;
/**
 * How long it must stay, in virtual time: longer than a server waits before it sends a desired state again,
 * which is 5 s.
 */
const STAYS_FOR_MS: readonly number[] = [6_000, 6_000, 6_000, 12_000];

export interface Outcome {
  readonly seed: number;
  readonly fingerprint: string;
  readonly violation: string | null;
  readonly lines: readonly string[];
  /** How often each fault met each state, as `fault/state` (met.ts). */
  readonly met: ReadonlyMap<string, number>;
  /** How often what happened that is decided about pools and lost nodes (replacing.ts). */
  readonly decided: Readonly<Record<string, number>>;
  readonly calls: ReadonlyMap<string, number>;
  readonly virtualMs: number;
  readonly statements: number;
  readonly events: number;
}

export async function simulate(real: RealDatabase, seed: number): Promise<Outcome> {
  await real.reset();
  const run = new Run(seed, real);
  let violation: string | null = null;
  try {
    await run.play();
  } catch (error) {
    violation = error instanceof Violation ? error.message : `seed ${seed}: ${(error as Error).stack}`;
  } finally {
    run.cluster.close();
  }
  const { world, databases } = run.cluster;
  return {
    ...{ seed, violation, met: run.met, calls: run.requests.calls, decided: run.cluster.replacing.counts },
    fingerprint: world.fingerprint(),
    lines: world.lines,
    virtualMs: world.now,
    statements: databases.statements,
    events: world.eventCount,
  };
}

class Run {
  readonly cluster: Cluster;
  readonly requests: Requests;
  readonly met = new Map<string, number>();
  readonly #faults: Faults;
  #rows: Rows | null = null;
  #healedAt: number | null = null;

  constructor(seed: number, real: RealDatabase) {
    this.cluster = new Cluster(seed, real, { nodes: 2 + (seed % 2) });
    this.requests = new Requests(this.cluster);
    this.#faults = new Faults(this.cluster, (fault, node) => this.#meet(fault, node));
  }

  async play(): Promise<void> {
    const { cluster } = this;
    const { world } = cluster;
    const { random } = world;
    this.#faults.setTempers();
    for (const name of SERVERS) cluster.startServer(name);
    for (const node of cluster.nodes) node.start();
    await world.until(3_000, () => this.#rows !== null);
    if (this.#faults.isSlow && random.happens(WAITING_FIRST)) await this.#fillPools();
    const steps = 12 + random.below(24);
    const pausing = this.#faults.isSlow ? 0.2 : 0;
    for (let step = 0; step < steps; step += 1) {
      // What lasts for a moment only meets a fault when one comes then.
      const node = this.#rows && nodeOfReplaced(this.#rows, cluster.replacing.replaced);
      const isBrief = this.#rows !== null && (hasBriefState(this.#rows) || node !== null || this.requests.isBranching);
      const isRare = this.#rows !== null && hasRareState(this.#rows);
      if (random.happens(isBrief ? 0.7 : isRare ? 0.45 : 0.3)) this.#faults.inject(isBrief || isRare, node);
      else this.requests.request(this.#rows);
      const short = isBrief || this.requests.isBranching ? 0.6 : 0.3;
      if (random.happens(pausing)) await world.until(random.between(0, PAUSE_MS_MAX));
      else await world.until(random.happens(short) ? random.between(0, 20) : random.between(0, STEP_MS_MAX));
      await this.#check();
    }
    this.#heal();
    await this.#reach();
  }

  /** Machines wait in pools before anything fails, so that nodes are lost that have some. */
  async #fillPools(): Promise<void> {
    this.requests.prefersPools = true;
    this.requests.pool();
    if (this.cluster.world.random.happens(0.5)) this.requests.pool();
    await this.cluster.world.until(PAUSE_MS_MAX / 4);
    await this.#check();
  }

  async #check(): Promise<Rows> {
    const before = this.#rows;
    const rows = await readRows(this.cluster.databases);
    this.#rows = rows;
    checkStep(this.cluster, { before, rows }, { ...this.requests, healedAt: this.#healedAt });
    const { violation } = this.cluster.world;
    if (violation !== null) throw violation;
    return rows;
  }

  /** A fault has happened: which states did it meet? */
  #meet(fault: Fault, node: string | null): void {
    if (this.#rows === null) return;
    for (const state of statesMet(this.#rows, this.cluster.replacing.replaced, node)) {
      const key = `${fault}/${state}`;
      this.met.set(key, (this.met.get(key) ?? 0) + 1);
    }
  }

  /** No more faults: every node is up and admits machines. */
  #heal(): void {
    this.#faults.heal();
    this.#healedAt = this.cluster.world.now;
    for (const { name } of this.cluster.nodes) this.requests.uncordon(name);
  }

  #whatIsOpen(rows: Rows): string | null {
    const restless = rows.machines.find(
      (machine) => this.requests.restless.has(machine.id) && phaseOf(machine) === "running",
    );
    return restless === undefined
      ? whatIsOpen(this.cluster, rows, this.#healedAt ?? 0)
      : `machine ${restless.id} is going to end by itself`;
  }

  /** Lets time pass until the desired state is reached, and then some more. */
  async #reach(): Promise<void> {
    const { cluster } = this;
    const { world } = cluster;
    const since = world.now;
    for (let stepMs = 1_000; ; stepMs = Math.min(stepMs * 1.3, 30_000)) {
      await world.until(stepMs);
      // What is replaced when it has waited for long never stays.
      await cluster.databases.look("UPDATE pools SET max_idle_seconds = NULL WHERE max_idle_seconds IS NOT NULL");
      const rows = await this.#check();
      const open = this.requests.open > 0 ? `${this.requests.open} calls are not answered` : this.#whatIsOpen(rows);
      if (open === null) break;
      const isStarting = rows.machines.some((machine) => phaseOf(machine) === "starting");
      if (world.now - since > (isStarting ? STARTS_WITHIN_MS : REACHES_WITHIN_MS))
        world.violate(`the desired state is not reached: ${open}`);
    }
    await world.until(world.random.pick(STAYS_FOR_MS));
    const rows = await this.#check();
    const open = this.#whatIsOpen(rows);
    if (open !== null) world.violate(`what was reached does not stay: ${open}`);
    const areClocksRight = cluster.nodes.every(({ aheadMs }) => aheadMs === 0);
    checkRuns(cluster, rows, await readRuns(cluster.databases), {
      // A server whose clock is behind records a run that is in its future at an earlier time without another.
      toleranceMs: areClocksRight && cluster.serversApartMs === 0 ? 1_500 : 200_000,
      // A run whose end was not seen ends where it began when the clock was set back in between.
      isForgiven: (node) => cluster.nodes.some(({ name, aheadMs }) => name === node && aheadMs !== 0),
    });
    if (world.violation !== null) throw world.violation;
  }
}
