/**
 * `flotilla plan diff PLAN MONTH`: what a month cost each tenant of a plan, and what it would cost at other
 * prices.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { findPlanId } from "../find-by-name.ts";
import { type Prices, pricesOf } from "./prices.ts";

export async function run(call: Call, [plan = "", month = ""]: readonly string[], prices: Prices): Promise<void> {
  const flotilla = call.flotilla();
  const diff = await flotilla.diffPlan(await findPlanId(flotilla, plan), { query: { month, ...pricesOf(prices) } });
  if (call.output.isJson) return call.output.json(diff);
  call.output.note(
    `at ${renderMicros(diff.cpuHourMicros)} a CPU hour, ${renderMicros(diff.memoryGbHourMicros)} a memory GB hour, ${renderMicros(diff.egressGbMicros)} an egress GB, ${renderMicros(diff.registryGbHourMicros)} a registry GB hour`,
  );
  call.output.table(
    ["TENANT", "COST", "PLANNED", "DIFFERENCE"],
    diff.tenants.map(({ tenantId, micros, plannedMicros, differenceMicros }) => [
      ...[tenantId, amountText(micros), amountText(plannedMicros), amountText(differenceMicros)],
    ]),
  );
}

const amountText = (micros: number | null): string => (micros === null ? "beyond 2^53 micros" : renderMicros(micros));
