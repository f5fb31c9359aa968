/**
 * Usage and cost of a period, from recorded intervals and their rates. Pure.
 *
 * Always:
 * - money is integer micros, rounded down once per meter and rate, from the sum over the whole period;
 * - amounts are integers: a quantity times milliseconds, of egress bytes;
 * - commands are counted and free.
 */
import { InexactAmount } from "@flotilla/base/money";
import { BYTES_PER_GB } from "@flotilla/contract/traffic";
import type { MachineUsageResponse } from "@flotilla/contract/machines";
import type { Static } from "@flotilla/contract/schema";
import type { CostBreakdown, UsageResponse } from "@flotilla/contract/usage";

/**
 * The meters: time running, virtual processors, MiB of memory, GiB of disk, bytes sent, MiB in the registry.
 * The CHECK of usage_intervals has the same.
 */
export const METERS = ["uptime", "cpu", "memory", "disk", "egress", "registry"] as const;
export type Meter = (typeof METERS)[number];

/** Prices in integer micros, as in the table `rates`. */
export interface Rate {
  readonly id: string;
  readonly cpuHourMicros: number;
  readonly memoryGbHourMicros: number;
  readonly egressGbMicros: number;
  readonly registryGbHourMicros: number;
}

/** Usage of one meter at one rate. */
export interface UsageLine {
  readonly meter: Meter;
  readonly rate: Rate;
  /** Quantity × milliseconds; of egress bytes. */
  readonly amount: bigint;
}

/** Instants in epoch milliseconds. */
export interface Period {
  readonly from: number;
  readonly to: number;
}

/** All usage in a period, of a tenant or of one machine. */
export interface Usage extends Period {
  readonly tenantId: string;
  readonly lines: readonly UsageLine[];
  /** How many machines there were at any time of the period. */
  readonly machineCount: number;
  readonly execCount: number;
  readonly execDurationMs: number;
}

const HOUR_MS = 3_600_000;
const MB_PER_GB = 1024;

/** The period from the start of the calendar month in UTC up to the instant. */
export function monthUpTo(to: number): Period {
  const date = new Date(to);
  return { from: Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1), to };
}

/** The cost of one line, in micros. */
export function lineMicros({ meter, rate, amount }: UsageLine): number {
  if (meter === "cpu") return Number((amount * BigInt(rate.cpuHourMicros)) / BigInt(HOUR_MS));
  if (meter === "memory") return Number((amount * BigInt(rate.memoryGbHourMicros)) / BigInt(HOUR_MS * MB_PER_GB));
  if (meter === "egress") return Number((amount * BigInt(rate.egressGbMicros)) / BigInt(BYTES_PER_GB));
  if (meter === "registry") return Number((amount * BigInt(rate.registryGbHourMicros)) / BigInt(HOUR_MS * MB_PER_GB));
  return 0;
}

export function usageResponse(usage: Usage): UsageResponse {
  const total = (meter: Meter): number =>
    Number(usage.lines.reduce((sum, line) => (line.meter === meter ? sum + line.amount : sum), 0n));
  return {
    tenantId: usage.tenantId,
    from: new Date(usage.from).toISOString(),
    to: new Date(usage.to).toISOString(),
    totalUptimeSeconds: Math.floor(total("uptime") / 1000),
    cpuHours: total("cpu") / HOUR_MS,
    memoryGbHours: total("memory") / HOUR_MS / MB_PER_GB,
    diskGbHours: total("disk") / HOUR_MS,
    egressGb: total("egress") / BYTES_PER_GB,
    registryGbHours: total("registry") / HOUR_MS / MB_PER_GB,
    machineCount: usage.machineCount,
    execCount: usage.execCount,
    execDurationMs: usage.execDurationMs,
  };
}

/** The cost of lines in micros, to compare with a budget. Exact up to 2^53, which is more than any budget. */
export const costOf = (lines: readonly UsageLine[]): number => lines.reduce((sum, line) => sum + lineMicros(line), 0);

/** Existing clients expect numbers for what has no price, too. */
const UNPRICED = {
  execMicros: 0,
  diskMicros: 0,
  baseMicros: 0,
  monthlyFeeMicros: 0,
  volumeDiscountMicros: 0,
  freeCreditMicros: 0,
  creditAppliedMicros: 0,
};

/** Throws InexactAmount when the total is beyond 2^53. */
export function costBreakdown(lines: readonly UsageLine[]): CostBreakdown {
  const cost = (meter: Meter): number =>
    lines.reduce((sum, line) => (line.meter === meter ? sum + lineMicros(line) : sum), 0);
  const [cpuMicros, memoryMicros, egressMicros] = [cost("cpu"), cost("memory"), cost("egress")];
  const registryMicros = cost("registry");
  const totalMicros = cpuMicros + memoryMicros + egressMicros + registryMicros;
  if (!Number.isSafeInteger(totalMicros)) throw new InexactAmount(String(totalMicros));
  const costs = { cpuMicros, memoryMicros, egressMicros, registryMicros };
  return { ...costs, ...UNPRICED, totalMicros, amountDueMicros: totalMicros };
}

/**
 * As `costBreakdown`, for an answer about many tenants; null: beyond 2^53, which refuses no answer about
 * others.
 */
export function costOrNull(lines: readonly UsageLine[]): CostBreakdown | null {
  return Number.isSafeInteger(costOf(lines)) ? costBreakdown(lines) : null;
}

export function machineUsage(machineId: string, usage: Usage): Static<typeof MachineUsageResponse> {
  const answer = usageResponse(usage);
  return { machineId, from: answer.from, to: answer.to, usage: answer, cost: costBreakdown(usage.lines) };
}
