/**
 * The random history of one tenant: its machines, their boots, and what their node reports of them when.
 *
 * Always: what the server should know after a report follows from the rules of decision 31, not from the
 * server's code.
 */
import type { Run } from "@flotilla/contract/link/link";
import { type Month, monthAt } from "../../src/billing/month.ts";
import type { Meter } from "../../src/usage/usage.ts";
import { type Period, type PlacedRun, place } from "./history-place.ts";
import { History, type Plan, type Span } from "./usage-history.ts";

/** A node that all machines of a tenant run on at a time. Instants in epoch milliseconds. */
export interface BatchNode {
  readonly id: string;
  /** How far its clock is ahead, in milliseconds. */
  clockError: number;
  isSilent: boolean;
  /** The server knows that it is unreachable. */
  isLost: boolean;
  heartbeat: number;
}

export interface LifeMachine {
  readonly id: string;
  readonly cpus: number;
  readonly memory: number;
  readonly disk: number;
  readonly createdAt: number;
  deletedAt: number | null;
  isPurged: boolean;
  /** In the order in which they began. */
  readonly boots: Boot[];
  /** The nodes that had it, in their order. */
  readonly periods: Period[];
}

/** One run of a machine. Instants by a clock that is right. */
export interface Boot {
  readonly id: string;
  readonly machine: LifeMachine;
  readonly node: BatchNode;
  readonly startedAt: number;
  /** Its start as its node has noted it, by its clock; null: not yet. */
  noted: number | null;
  endedAt: number | null;
  /** Where the server has recorded it; null: nowhere. */
  placed: PlacedRun | null;
  /** What the server has recorded of it; null: nothing. */
  spans: Span[] | null;
  isUnreported: boolean;
  /** The server has recorded its end. */
  isEnded: boolean;
}

interface LifeOptions {
  readonly tenant: string;
  readonly node: BatchNode;
  readonly plan: string;
  readonly plans: Map<string, Plan>;
  readonly at: number;
  readonly draw: (max: number) => number;
}

const MACHINES_MAX = 3;
/** As decision 33 says. */
const HOLD_MS = 60_000;
const RENEW_AFTER_MS = 10_000;

export class Life {
  readonly tenant: string;
  /** The node that has its machines. */
  node: BatchNode;
  /** Nodes that have, or had, machines of it. */
  readonly nodes = new Set<BatchNode>();
  readonly history: History;
  plan: string;
  /** The month of the tenant's next invoice. */
  next: Month;
  /** Machines that were made in this round. */
  created: LifeMachine[] = [];
  /** What is held for machines that run, by their ids. Instants in epoch milliseconds. */
  readonly holds = new Map<
    string,
    { readonly placedAt: number; readonly from: number; readonly until: number; readonly micros: bigint }
  >();
  readonly #draw: (max: number) => number;
  readonly #machines: LifeMachine[] = [];
  readonly #plans: readonly string[];
  #deleted: LifeMachine[] = [];

  constructor({ tenant, node, plan, plans, at, draw }: LifeOptions) {
    this.tenant = tenant;
    this.node = node;
    this.nodes.add(node);
    this.plan = plan;
    this.next = monthAt(at);
    this.history = new History(plans);
    this.history.tenants.set(tenant, [{ from: 0, plan }]);
    this.#plans = [...plans.keys()];
    this.#draw = draw;
  }

  /**
   * What happens up to `now`: machines are made and deleted, boots begin and end. The server knows nothing of
   * it yet.
   */
  step(before: number, now: number): void {
    this.created = [];
    this.#deleted = [];
    if (this.#machines.length < MACHINES_MAX && this.#draw(3) === 0) this.#make(now);
    for (const machine of this.#machines) {
      if (machine.deletedAt === null && machine.createdAt < now && this.#draw(12) === 0) this.#deleted.push(machine);
      if (machine.deletedAt !== null && machine.boots.at(-1)?.endedAt !== null) continue;
      let at = Math.max(before, machine.createdAt);
      for (let count = this.#draw(3); count > 0; count -= 1) {
        at += this.#draw(Math.max(1, now - at));
        this.#startOrEnd(machine, at);
      }
    }
  }

  /** Whether the tenant has another plan from now on. */
  movePlan(now: number): boolean {
    if (this.#draw(8) > 0) return false;
    const plan = this.#plans[this.#draw(this.#plans.length)];
    if (plan === undefined || plan === this.plan) return false;
    this.plan = plan;
    this.history.tenants.get(this.tenant)?.push({ from: now, plan });
    return true;
  }

  /**
   * Moves its machines to the node, and returns them. None of them runs while it is moved, but their former
   * node may not have reported that.
   */
  moveTo(node: BatchNode, now: number): readonly LifeMachine[] {
    if (node === this.node) return [];
    const moved = this.#machines.filter(({ deletedAt }) => deletedAt === null);
    for (const machine of moved) {
      const last = machine.boots.at(-1);
      if (last !== undefined && last.endedAt === null) {
        last.endedAt = Math.max(last.startedAt, now - this.#draw(2 * 60_000));
        last.isUnreported = true;
      }
      const period = machine.periods.at(-1);
      if (period !== undefined) period.until = now;
      machine.periods.push({ node: node.id, since: now, until: null });
      for (const boot of machine.boots.filter(({ isEnded }) => !isEnded)) leave(boot, now);
    }
    this.node = node;
    this.nodes.add(node);
    this.history.heartbeat = node.heartbeat;
    return moved;
  }

  /** Machines that were deleted in this round and whose rows are gone. */
  get purged(): readonly LifeMachine[] {
    return this.#deleted.filter(({ isPurged }) => isPurged);
  }

  /**
   * Deletes machines as of now and returns them. What runs counts up to then, on a lost node to its last
   * heartbeat.
   */
  remove(now: number): readonly LifeMachine[] {
    for (const machine of this.#deleted) {
      machine.deletedAt = now;
      machine.isPurged = this.#draw(2) === 0;
      const counted = (node: BatchNode): number => (node.isLost ? Math.min(now, node.heartbeat) : now);
      for (const boot of machine.boots.filter(({ isEnded }) => !isEnded)) countUntil(boot, counted(boot.node));
      for (const span of this.history.spans) if (span.machine === machine.id && span.meter === "disk") span.to ??= now;
    }
    return this.#deleted;
  }

  /** What a node's heartbeat contains now, and what follows from it for the history. */
  reports(now: number, node: BatchNode): Omit<Run, "sequence">[] {
    this.history.heartbeat = this.node.heartbeat;
    const reports: Omit<Run, "sequence">[] = [];
    for (const machine of this.#machines) {
      // What is lost is reported later, and everything of the machine after it as well.
      if (this.#draw(6) === 0) continue;
      for (const boot of machine.boots.filter((each) => each.node === node)) {
        if (!boot.isUnreported && (boot.spans === null || this.#draw(8) > 0)) continue;
        boot.noted ??= boot.startedAt + node.clockError;
        const endedAt = boot.endedAt === null ? null : Math.max(boot.noted, boot.endedAt + node.clockError);
        const run = {
          ...{ machineId: machine.id, bootId: boot.id, startedAt: boot.noted, endedAt },
          cause: boot.endedAt === null ? null : ("stop" as const),
          egressBytes: 0,
        };
        reports.push(run);
        boot.isUnreported = false;
        this.#record(boot, run, now);
      }
    }
    return reports;
  }

  /** Boots that the server knows and whose end it does not know. */
  openBoots(): readonly Boot[] {
    return this.#machines.flatMap(({ boots }) => boots.filter(({ spans, isEnded }) => spans !== null && !isEnded));
  }

  /** The machines that run as the server knows, and those that do not. */
  get machines(): { readonly active: readonly LifeMachine[]; readonly idle: readonly LifeMachine[] } {
    const running = this.openBoots().filter(({ placed }) => placed?.leftAt === null && placed.countedUntil === null);
    const open = new Set(running.map(({ machine }) => machine));
    const there = this.#machines.filter(({ deletedAt }) => deletedAt === null);
    return { active: there.filter((each) => open.has(each)), idle: there.filter((each) => !open.has(each)) };
  }

  /** What is held after a renewal, by the rules of decision 33. */
  renewHolds(now: number): void {
    const { active } = this.machines;
    const isHeld = this.history.plans.get(this.plan)?.isHeld === true;
    const running = new Set(active.map(({ id }) => id));
    for (const id of this.holds.keys()) if (!isHeld || !running.has(id)) this.holds.delete(id);
    if (!isHeld) return;
    const month = monthAt(now);
    const until = Math.min(now + HOLD_MS, month.to);
    for (const machine of active) {
      const held = this.holds.get(machine.id);
      if (held !== undefined && (this.node.isLost || held.until > until - RENEW_AFTER_MS)) continue;
      const placedAt = held?.placedAt ?? now;
      const from = held === undefined ? now : Math.max(placedAt, month.from, Math.min(now, this.node.heartbeat));
      const micros = this.history.held(this.tenant, machine, from, until);
      this.holds.set(machine.id, { placedAt, from, until, micros });
    }
  }

  /** The node does not know these boots any more, and last reported at `lastReportAt`. */
  forget(isForgotten: (boot: Boot) => boolean, lastReportAt: number): void {
    for (const boot of this.openBoots().filter(isForgotten)) {
      boot.endedAt ??= boot.startedAt;
      boot.isUnreported = false;
      boot.isEnded = true;
      const { placed, spans } = boot;
      if (placed === null) continue;
      placed.to = Math.max(placed.from, Math.min(placed.leftAt ?? lastReportAt, lastReportAt));
      for (const span of spans ?? []) span.to ??= placed.to;
    }
  }

  describe(): string {
    const rates = this.history.plans;
    const plans = [...new Set(this.history.tenants.get(this.tenant)?.map(({ plan }) => plan))];
    return JSON.stringify({
      ...{ spans: this.history.spans, heartbeat: this.history.heartbeat, next: this.next.id },
      ...{ moves: this.history.tenants.get(this.tenant), rates: plans.map((plan) => rates.get(plan)) },
    });
  }

  #make(now: number): void {
    const id = `mach-${this.#hex()}`;
    const [cpus, memory, disk] = [1 + this.#draw(8), 1 + this.#draw(8192), 1 + this.#draw(100)];
    const periods = [{ node: this.node.id, since: now, until: null }];
    const machine = { id, cpus, memory, disk, createdAt: now, deletedAt: null, isPurged: false, boots: [], periods };
    this.created.push(machine);
    this.#machines.push(machine);
    this.history.spans.push({ machine: id, tenant: this.tenant, meter: "disk", quantity: disk, from: now, to: null });
  }

  /**
   * 32 hexadecimal digits, as of a UUID: similar ids would make the index against overlaps several times as
   * slow.
   */
  #hex(): string {
    const part = (): string =>
      this.#draw(2 ** 32)
        .toString(16)
        .padStart(8, "0");
    return part() + part() + part() + part();
  }

  #startOrEnd(machine: LifeMachine, at: number): void {
    const last = machine.boots.at(-1);
    if (last !== undefined && last.endedAt === null) {
      last.endedAt = Math.max(at, last.startedAt);
      last.isUnreported = true;
      return;
    }
    if (machine.deletedAt !== null) return;
    const id = `boot-${this.#hex()}`;
    const unknown = { noted: null, endedAt: null, placed: null, spans: null, isUnreported: true, isEnded: false };
    machine.boots.push({ id, machine, node: this.node, startedAt: at, ...unknown });
  }

  /** As decision 31 says: at its place, with its length, counted up to the end of its period or a deletion. */
  #record(boot: Boot, run: Omit<Run, "sequence">, now: number): void {
    const { machine, placed } = boot;
    if (placed !== null && boot.spans !== null) {
      if (run.endedAt === null || boot.isEnded) return;
      boot.isEnded = true;
      placed.to = Math.max(placed.from, Math.min(now, placed.leftAt ?? now, run.endedAt + placed.later));
      for (const span of boot.spans) span.to ??= placed.to;
      return;
    }
    if (machine.isPurged) return;
    const others = machine.boots.flatMap((each) => each.placed ?? []);
    const { periods, deletedAt } = machine;
    boot.placed = place(
      { node: boot.node.id, startedAt: run.startedAt, endedAt: run.endedAt, deletedAt, now },
      periods,
      others,
    );
    if (boot.placed === null) {
      boot.isUnreported = true;
      return;
    }
    const { from, to, countedUntil } = boot.placed;
    const end = Math.min(to ?? Number.POSITIVE_INFINITY, countedUntil ?? Number.POSITIVE_INFINITY);
    const until = end === Number.POSITIVE_INFINITY ? null : end;
    const span = (meter: Meter, quantity: number): Span => ({
      ...{ machine: machine.id, tenant: this.tenant, meter, quantity, from, to: until },
    });
    boot.spans = [span("uptime", 1), span("cpu", machine.cpus), span("memory", machine.memory)];
    this.history.spans.push(...boot.spans);
    boot.isEnded = to !== null;
  }
}

/** What the server has recorded of the boot counts at most up to then. */
function countUntil({ placed, spans }: Boot, at: number): void {
  if (placed === null) return;
  placed.countedUntil = Math.max(placed.from, Math.min(placed.countedUntil ?? at, at));
  for (const span of spans ?? []) span.to ??= Math.min(placed.leftAt ?? at, placed.countedUntil);
}

/** The machine of the boot leaves its node. */
function leave({ placed, spans }: Boot, at: number): void {
  if (placed === null || placed.leftAt !== null) return;
  placed.leftAt = Math.max(placed.from, at);
  for (const span of spans ?? []) span.leftAt = placed.leftAt;
}
