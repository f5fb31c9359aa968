/**
 * What a machine used in a period and what it costs: from its runs and its plan's rates. Pure.
 *
 * Always: money is integer micros, computed from whole machine-milliseconds and rounded down once per line; commands
 * are counted and free.
 */
import type { MachineUsageResponse } from "@flotilla/contract/machines";
import type { Static } from "@flotilla/contract/schema";
import type { CostBreakdown } from "@flotilla/contract/usage";

export interface Rates {
  readonly cpuHourMicros: number;
  readonly memoryGbHourMicros: number;
}

/** One boot; `endedAt` null: it still runs. Epoch milliseconds. */
export interface Run {
  readonly startedAt: number;
  readonly endedAt: number | null;
}

/** What is metered of a machine. Instants in epoch milliseconds. */
export interface MeteredMachine {
  readonly id: string;
  readonly tenantId: string;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskGb: number;
  readonly createdAt: number;
  /** null: it was not deleted. */
  readonly deletedAt: number | null;
}

export interface UsageFacts {
  readonly machine: MeteredMachine;
  readonly runs: readonly Run[];
  readonly execCount: number;
  readonly execDurationMs: number;
  readonly rates: Rates;
  readonly now: number;
}

const HOUR_MS = 3_600_000;
const MB_PER_GB = 1024;

/** The current calendar month in UTC; of a deleted machine the month in which it was deleted, up to then. */
export function usagePeriod(machine: MeteredMachine, now: number): { readonly from: number; readonly to: number } {
  const to = machine.deletedAt ?? now;
  const date = new Date(to);
  return { from: Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1), to };
}

export function machineUsage(facts: UsageFacts): Static<typeof MachineUsageResponse> {
  const { machine, runs, rates, now } = facts;
  const { from, to } = usagePeriod(machine, now);
  const upMs = runs.reduce((sum, run) => sum + overlapMs(run, from, to), 0);
  const keptMs = Math.max(0, to - Math.max(from, machine.createdAt));
  const cpuMicros = micros(upMs * machine.cpus, rates.cpuHourMicros, HOUR_MS);
  const memoryMicros = micros(upMs * machine.memoryMb, rates.memoryGbHourMicros, HOUR_MS * MB_PER_GB);
  return {
    machineId: machine.id,
    from: new Date(from).toISOString(),
    to: new Date(to).toISOString(),
    usage: {
      tenantId: machine.tenantId,
      from: new Date(from).toISOString(),
      to: new Date(to).toISOString(),
      totalUptimeSeconds: Math.floor(upMs / 1000),
      cpuHours: (upMs * machine.cpus) / HOUR_MS,
      memoryGbHours: (upMs * machine.memoryMb) / HOUR_MS / MB_PER_GB,
      diskGbHours: (keptMs * machine.diskGb) / HOUR_MS,
      // Not metered yet.
      egressGb: 0,
      machineCount: 1,
      execCount: facts.execCount,
      execDurationMs: facts.execDurationMs,
    },
    cost: costOf({ cpuMicros, memoryMicros }),
  };
}

/** What is not priced is there as 0, because clients in daily use read numbers. */
function costOf({ cpuMicros, memoryMicros }: Pick<CostBreakdown, "cpuMicros" | "memoryMicros">): CostBreakdown {
  const totalMicros = cpuMicros + memoryMicros;
  const free = { execMicros: 0, diskMicros: 0, egressMicros: 0, baseMicros: 0 };
  return { cpuMicros, memoryMicros, ...free, totalMicros, amountDueMicros: totalMicros };
}

function overlapMs(run: Run, from: number, to: number): number {
  return Math.max(0, Math.min(run.endedAt ?? to, to) - Math.max(run.startedAt, from));
}

/** amount × rate ÷ divisor, rounded down; the product does not fit a double. */
function micros(amount: number, rate: number, divisor: number): number {
  return Number((BigInt(amount) * BigInt(rate)) / BigInt(divisor));
}
