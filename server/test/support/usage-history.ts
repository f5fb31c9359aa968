/**
 * The history of a test of usage, and the sums and prices that follow from it.
 *
 * Always: computed from the history alone, by other code than the server's, in exact integers. Only months
 * are the server's (billing/month.ts), which has its own test.
 */
import { type Month, monthAfter, monthAt } from "../../src/billing/month.ts";
import type { Meter } from "../../src/usage/usage.ts";

export interface Plan {
  readonly id: string;
  /** What machines of its tenants may still cost is held. */
  readonly isHeld?: boolean;
  /** In order; the first since ever. */
  readonly rates: {
    readonly from: number;
    readonly cpu: number;
    readonly memory: number;
    /** Absent: 0. */
    readonly egress?: number;
  }[];
}

export interface Span {
  readonly machine: string;
  readonly tenant: string;
  readonly meter: Meter;
  readonly quantity: number;
  readonly from: number;
  to: number | null;
  /** When its machine left its node while no end was known. */
  leftAt?: number;
}

export interface Priced {
  readonly amount: bigint;
  readonly micros: bigint;
}
const NOTHING: Priced = { amount: 0n, micros: 0n };

/** Independent of the server: what happened, and the sums that follow from it. */
export class History {
  readonly plans: Map<string, Plan>;
  /** In order; the first since ever. */
  readonly tenants = new Map<string, { readonly from: number; readonly plan: string }[]>();
  readonly spans: Span[] = [];
  /** Heartbeat of the node that all machines run on. */
  heartbeat = 0;
  /** What was invoiced, by tenant and month of the usage; then by line, as `priced` names it. */
  readonly invoiced = new Map<string, Map<number, Map<string, Priced>>>();

  /** `plans`: shared with other histories. */
  constructor(plans: Map<string, Plan> = new Map()) {
    this.plans = plans;
  }

  /**
   * The lines of the next invoice, which is of the month: what all usage up to it costs, less what was
   * invoiced.
   */
  nextInvoice(tenant: string, month: Month, now: number): Map<string, Priced> {
    const before = this.invoiced.get(tenant) ?? new Map<number, Map<string, Priced>>();
    const lines = new Map<string, Priced>();
    const first = monthAt(Math.min(month.from, ...this.spans.map(({ from }) => from)));
    for (let of = first; of.from <= month.from; of = monthAfter(of)) {
      const known = this.priced(tenant, of.from, of.to, now);
      const invoiced = before.get(of.from) ?? new Map<string, Priced>();
      for (const key of new Set([...known.keys(), ...invoiced.keys()])) {
        const [is, was] = [known.get(key) ?? NOTHING, invoiced.get(key) ?? NOTHING];
        if (is.amount === was.amount) continue;
        lines.set(`${of.id} ${key}`, { amount: is.amount - was.amount, micros: is.micros - was.micros });
      }
    }
    return lines;
  }

  noteInvoice(tenant: string, month: Month, now: number): void {
    const before = this.invoiced.get(tenant) ?? new Map<number, Map<string, Priced>>();
    const first = monthAt(Math.min(month.from, ...this.spans.map(({ from }) => from)));
    for (let of = first; of.from <= month.from; of = monthAfter(of))
      before.set(of.from, this.priced(tenant, of.from, of.to, now));
    this.invoiced.set(tenant, before);
  }

  /** The amounts by meter and price, and the price rounded down for each. */
  cost(
    tenant: string,
    from: number,
    to: number,
    now: number,
  ): { readonly cpu: bigint; readonly memory: bigint; readonly egress: bigint } {
    const lines = [...this.priced(tenant, from, to, now)];
    const sum = (of: Meter): bigint =>
      lines.reduce((total, [key, { micros }]) => (key.startsWith(`${of} `) ? total + micros : total), 0n);
    return { cpu: sum("cpu"), memory: sum("memory"), egress: sum("egress") };
  }

  /** What was used in a period and its price rounded down, by meter, plan and number of the plan's rate. */
  priced(tenant: string, from: number, to: number, now: number): Map<string, Priced> {
    const amounts = new Map<string, bigint>();
    const changes = this.edges(tenant);
    for (const span of this.spans.filter((each) => each.tenant === tenant)) {
      const [start, end] = [Math.max(from, span.from), Math.min(to, this.endOf(span, now))];
      const edges = new Set([start, end]);
      for (const edge of changes) if (edge > start && edge < end) edges.add(edge);
      const sorted = [...edges].sort((a, b) => a - b);
      for (const [at, edge] of sorted.entries()) {
        const next = sorted[at + 1];
        if (next === undefined || start >= end) continue;
        const key = `${span.meter} ${this.rateAt(tenant, edge)}`;
        amounts.set(key, (amounts.get(key) ?? 0n) + BigInt(span.quantity) * BigInt(next - edge));
      }
    }
    const micros = (key: string, amount: bigint): bigint => {
      const [meter, plan, index] = key.split(" ");
      const rate = this.plans.get(String(plan))?.rates[Number(index)];
      if (meter === "egress") return (amount * BigInt(rate?.egress ?? 0)) / 1_073_741_824n;
      if (rate === undefined || (meter !== "cpu" && meter !== "memory")) return 0n;
      return meter === "cpu"
        ? (amount * BigInt(rate.cpu)) / 3_600_000n
        : (amount * BigInt(rate.memory)) / (3_600_000n * 1024n);
    };
    return new Map([...amounts].map(([key, amount]) => [key, { amount, micros: micros(key, amount) }]));
  }

  /** What a machine costs from one instant to another: rounded up for each price and meter. */
  held(tenant: string, { cpus, memory }: { cpus: number; memory: number }, from: number, to: number): bigint {
    const edges = [from, ...this.edges(tenant).filter((edge) => edge > from && edge < to), to];
    const sorted = [...new Set(edges)].sort((a, b) => a - b);
    const times = new Map<string, bigint>();
    for (const [at, edge] of sorted.entries()) {
      const key = this.rateAt(tenant, edge);
      times.set(key, (times.get(key) ?? 0n) + BigInt((sorted[at + 1] ?? edge) - edge));
    }
    const up = (amount: bigint, by: bigint): bigint => (amount + by - 1n) / by;
    let sum = 0n;
    for (const [key, ms] of times) {
      const [plan, index] = key.split(" ");
      const rate = this.plans.get(String(plan))?.rates[Number(index)];
      if (rate === undefined) continue;
      sum += up(BigInt(cpus) * ms * BigInt(rate.cpu), 3_600_000n);
      sum += up(BigInt(memory) * ms * BigInt(rate.memory), 3_600_000n * 1024n);
    }
    return sum;
  }

  /** How far a span counts: what runs counts up to the last heartbeat. */
  private endOf({ from, to, meter, leftAt }: Span, now: number): number {
    if (to !== null) return to;
    return Math.max(from, meter === "disk" ? now : Math.min(now, leftAt ?? this.heartbeat));
  }

  amount(tenant: string, meter: Meter, { from, to, now }: { from: number; to: number; now: number }): bigint {
    return this.spans
      .filter((span) => span.tenant === tenant && span.meter === meter)
      .map((span) => [span.quantity, Math.min(to, this.endOf(span, now)) - Math.max(from, span.from)] as const)
      .reduce((sum, [quantity, ms]) => sum + BigInt(quantity) * BigInt(Math.max(0, ms)), 0n);
  }

  private edges(tenant: string): readonly number[] {
    const moves = this.tenants.get(tenant) ?? [];
    return [
      ...moves.map(({ from }) => from),
      ...moves.flatMap(({ plan }) => (this.plans.get(plan)?.rates ?? []).map(({ from }) => from)),
    ];
  }

  private rateAt(tenant: string, at: number): string {
    const move = this.tenants.get(tenant)?.findLast(({ from }) => from <= at);
    const plan = this.plans.get(move?.plan ?? "");
    return `${plan?.id} ${plan?.rates.findLastIndex(({ from }) => from <= at)}`;
  }
}
