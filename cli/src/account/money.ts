/**
 * Amounts and usage as text. Pure.
 */
import type { CostBreakdown, UsageResponse } from "@flotilla/sdk";
import { renderSpan } from "../table.ts";

const MICROS_DIGITS = 6;

/** Integer micros as an exact decimal number of currency units, with at least two decimals: `1.50`, `0.000012`. */
export function renderMicros(micros: number): string {
  const digits = String(Math.abs(micros)).padStart(MICROS_DIGITS + 1, "0");
  const [whole, fraction] = [digits.slice(0, -MICROS_DIGITS), digits.slice(-MICROS_DIGITS)];
  return `${micros < 0 ? "-" : ""}${whole}.${fraction.slice(0, 2)}${fraction.slice(2).replace(/0+$/, "")}`;
}

export const usageFacts = (usage: UsageResponse): (readonly [string, string])[] => [
  ["period", `${usage.from} to ${usage.to}`],
  ["machines", String(usage.machineCount)],
  ["uptime", renderSpan(usage.totalUptimeSeconds * 1000)],
  ["CPU hours", renderHours(usage.cpuHours)],
  ["memory GB hours", renderHours(usage.memoryGbHours)],
  ["disk GB hours", renderHours(usage.diskGbHours)],
  ["commands", `${usage.execCount} in ${renderSpan(usage.execDurationMs)}`],
];

export const costFacts = (cost: CostBreakdown): (readonly [string, string])[] => [
  [
    "cost",
    `${renderMicros(cost.totalMicros)} (CPU ${renderMicros(cost.cpuMicros)}, memory ${renderMicros(cost.memoryMicros)})`,
  ],
];

const renderHours = (hours: number): string => (hours > 0 && hours < 0.001 ? "less than 0.001" : hours.toFixed(3));
