/**
 * `flotilla plan ls`: all plans, the default one first, with the prices that hold now.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { renderMemory } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const plans = await call.flotilla().listPlans();
  if (call.output.isJson) return call.output.json(plans);
  call.output.table(
    ["ID", "NAME", "MACHINES", "RUNNING", "ONE MACHINE", "CPU HOUR", "MEMORY GB HOUR", "BUDGET"],
    plans.map((plan) => [
      plan.id,
      plan.isDefault ? `${plan.name} (default)` : plan.name,
      String(plan.maxMachines),
      String(plan.maxConcurrentMachines),
      `${plan.maxCpus} CPUs, ${renderMemory(plan.maxMemoryMb)}, ${plan.maxDiskGb} GB disk`,
      renderMicros(plan.rateCpuHourMicros),
      renderMicros(plan.rateMemoryGbHourMicros),
      plan.monthlyBudgetMicros === null ? "none" : `${renderMicros(plan.monthlyBudgetMicros)} (${plan.budgetPolicy})`,
    ]),
  );
}
