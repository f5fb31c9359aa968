/**
 * `flotilla plan get PLAN`: a plan's limits, the prices that hold now, and its budget.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { findPlanId } from "../find-by-name.ts";
import { renderMemory } from "../table.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const plan = await flotilla.getPlan(await findPlanId(flotilla, reference));
  if (call.output.isJson) return call.output.json(plan);
  const sizes = (cpus: number, memoryMb: number, diskGb: number): string =>
    `at most ${cpus} CPUs, ${renderMemory(memoryMb)} memory, ${diskGb} GB disk`;
  call.output.facts([
    ["plan", plan.id],
    ["name", plan.isDefault ? `${plan.name} (default)` : plan.name],
    ["machines", `at most ${plan.maxMachines}, ${plan.maxConcurrentMachines} of them running`],
    ["one machine", sizes(plan.maxCpus, plan.maxMemoryMb, plan.maxDiskGb)],
    ["all together", sizes(plan.maxTotalCpus, plan.maxTotalMemoryMb, plan.maxTotalDiskGb)],
    ["egress", plan.maxEgressGb === null ? "no limit" : `at most ${plan.maxEgressGb} GB a month`],
    ["packages", plan.maxPackageGb === null ? "no limit" : `at most ${plan.maxPackageGb} GB`],
    ["requests", `${plan.rateRequestsPerSecond} a second, ${plan.rateBurst} at once`],
    ["CPU hour", renderMicros(plan.rateCpuHourMicros)],
    ["memory GB hour", renderMicros(plan.rateMemoryGbHourMicros)],
    ["egress GB", renderMicros(plan.rateEgressGbMicros)],
    ["registry GB hour", renderMicros(plan.rateRegistryGbHourMicros)],
    [
      "budget",
      plan.monthlyBudgetMicros === null
        ? "none"
        : `${renderMicros(plan.monthlyBudgetMicros)} a month (policy: ${plan.budgetPolicy})`,
    ],
    ["created", plan.createdAt],
  ]);
}
