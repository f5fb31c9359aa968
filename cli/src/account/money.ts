/**
 * Usage and cost as text. Pure.
 */
import { renderMicros } from "@flotilla/base/money";
import { renderSpan } from "@flotilla/base/span";
import type { CostBreakdown, UsageResponse } from "@flotilla/sdk";

export const usageFacts = (usage: UsageResponse): (readonly [string, string])[] => [
  ["period", `${usage.from} to ${usage.to}`],
  ["machines", String(usage.machineCount)],
  ["uptime", renderSpan(usage.totalUptimeSeconds * 1000)],
  ["CPU hours", renderHours(usage.cpuHours)],
  ["memory GB hours", renderHours(usage.memoryGbHours)],
  ["disk GB hours", renderHours(usage.diskGbHours)],
  ["egress GB", renderHours(usage.egressGb)],
  ["registry GB hours", renderHours(usage.registryGbHours)],
  ["commands", `${usage.execCount} in ${renderSpan(usage.execDurationMs)}`],
];

export const costFacts = (cost: CostBreakdown): (readonly [string, string])[] => [
  [
    "cost",
    `${renderMicros(cost.totalMicros)} (CPU ${renderMicros(cost.cpuMicros)}, memory ${renderMicros(cost.memoryMicros)}, egress ${renderMicros(cost.egressMicros)}, registry ${renderMicros(cost.registryMicros)})`,
  ],
];

const renderHours = (hours: number): string => (hours > 0 && hours < 0.001 ? "less than 0.001" : hours.toFixed(3));
