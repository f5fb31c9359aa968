/**
 * The random history of one tenant: its machines, their boots, and what their node reports of them when.
 *
 * Always: what the server should know after a report follows from the rules of decision 31, not from the
 * server's code.
 */
import assert from "node:assert/strict";
import type { Run } from "@flotilla/contract/link/link";
import { type Month, monthAt } from "../../src/billing/month.ts";
import type { Meter } from "../../src/usage/usage.ts";
import { History, type Plan, type Span } from "./usage-history.ts";

/** A node that all machines of a tenant run on. Instants in epoch milliseconds. */
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
}

/** One run of a machine. Instants by the node's clock. */
export interface Boot {
  readonly id: string;
  readonly machine: LifeMachine;
  readonly startedAt: number;
  endedAt: number | null;
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
  readonly node: BatchNode;
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
      for (const span of this.history.spans)
        if (span.machine === machine.id && span.to === null)
          span.to =
            span.meter === "disk" || !this.node.isLost ? now : Math.max(span.from, Math.min(now, this.node.heartbeat));
    }
    return this.#deleted;
  }

  /** What the node's heartbeat contains now, and what follows from it for the history. */
  reports(now: number, clockError: number): Omit<Run, "sequence">[] {
    this.history.heartbeat = this.node.heartbeat;
    const reports: Omit<Run, "sequence">[] = [];
    for (const machine of this.#machines) {
      // What is lost is reported later, and everything of the machine after it as well.
      if (this.#draw(6) === 0) continue;
      for (const boot of machine.boots) {
        if (!boot.isUnreported && (boot.spans === null || this.#draw(8) > 0)) continue;
        const run = {
          ...{ machineId: machine.id, bootId: boot.id, startedAt: boot.startedAt + clockError },
          ...{ endedAt: boot.endedAt === null ? null : boot.endedAt + clockError },
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
    const open = new Set(this.openBoots().map(({ machine }) => machine));
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
      for (const span of boot.spans ?? []) span.to ??= Math.max(span.from, lastReportAt);
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
    const machine = { id, cpus, memory, disk, createdAt: now, deletedAt: null, isPurged: false, boots: [] };
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
    const boot = { id, machine, startedAt: at, endedAt: null, spans: null, isUnreported: true, isEnded: false };
    machine.boots.push(boot);
  }

  /**
   * No start before the machine was made, no time after the report arrived, no end before the start or after
   * the deletion.
   */
  #record(boot: Boot, run: Omit<Run, "sequence">, now: number): void {
    const { machine } = boot;
    if (boot.spans === null) {
      if (machine.isPurged) return;
      const from = Math.max(machine.createdAt, Math.min(now, run.startedAt));
      const span = (meter: Meter, quantity: number): Span => ({
        ...{ machine: machine.id, tenant: this.tenant, meter, quantity, from },
        to: machine.deletedAt === null ? null : Math.max(from, machine.deletedAt),
      });
      boot.spans = [span("uptime", 1), span("cpu", machine.cpus), span("memory", machine.memory)];
      this.history.spans.push(...boot.spans);
      if (run.endedAt !== null && machine.deletedAt !== null)
        for (const each of boot.spans)
          each.to = Math.max(from, Math.min(machine.deletedAt, Math.min(now, run.endedAt)));
    }
    if (run.endedAt === null || boot.isEnded) return;
    boot.isEnded = true;
    for (const span of boot.spans) span.to ??= Math.max(span.from, Math.min(now, run.endedAt));
    assert.ok(boot.spans.length === 3);
  }
}
