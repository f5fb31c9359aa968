/**
 * Creates a plan. What the request leaves out is taken from the default plan.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { CreatePlanRequest } from "@flotilla/contract/plans";
import type { Context } from "../context.ts";
import { findPlanMadeAs, getDefaultPlan, insertPlan, lockPlans, type PlanRow, unsetDefaultPlan } from "./store.ts";

/** `newId`: for a plan whose request names none. A repetition with the same one answers the plan that was made. */
export async function createPlan(context: Context, request: CreatePlanRequest, newId: string): Promise<PlanRow> {
  const id = request.id ?? newId;
  const createdAt = new Date(context.clock.now());
  const created = await context.db.transaction(async (transaction) => {
    await lockPlans(transaction);
    const known = await findPlanMadeAs(transaction, { id, madeAs: newId });
    if (known !== undefined) return known;
    const base = await getDefaultPlan(transaction);
    const plan = merge(base, request, { id, createdAt });
    if (plan.is_default) await unsetDefaultPlan(transaction);
    const written = await insertPlan(transaction, plan, newId);
    if (written === undefined)
      throw new Refusal("name_taken", `a plan with the id ${id} or the name ${request.name} exists`);
    return written;
  });
  // This server's caches drop the old default before the answer.
  if (created.is_default) await context.db.notify("tenants", id);
  return created;
}

function merge(
  base: PlanRow,
  request: CreatePlanRequest,
  { id, createdAt }: { readonly id: string; readonly createdAt: Date },
): PlanRow {
  return {
    id,
    name: request.name,
    is_default: request.isDefault ?? false,
    budget_policy: request.budgetPolicy ?? base.budget_policy,
    max_apps: request.maxApps ?? base.max_apps,
    max_cpus: request.maxCpus ?? base.max_cpus,
    max_memory_mb: request.maxMemoryMb ?? base.max_memory_mb,
    max_disk_gb: request.maxDiskGb ?? base.max_disk_gb,
    max_machines: request.maxMachines ?? base.max_machines,
    max_concurrent_machines: request.maxConcurrentMachines ?? base.max_concurrent_machines,
    max_total_cpus: request.maxTotalCpus ?? base.max_total_cpus,
    max_total_memory_mb: request.maxTotalMemoryMb ?? base.max_total_memory_mb,
    max_total_disk_gb: request.maxTotalDiskGb ?? base.max_total_disk_gb,
    rate_cpu_hour_micros: request.rateCpuHourMicros ?? base.rate_cpu_hour_micros,
    rate_memory_gb_hour_micros: request.rateMemoryGbHourMicros ?? base.rate_memory_gb_hour_micros,
    rate_exec_micros: request.rateExecMicros ?? base.rate_exec_micros,
    rate_requests_per_second: request.rateRequestsPerSecond ?? base.rate_requests_per_second,
    rate_burst: request.rateBurst ?? base.rate_burst,
    max_egress_gb: request.maxEgressGb ?? base.max_egress_gb,
    monthly_budget_micros: request.monthlyBudgetMicros ?? base.monthly_budget_micros,
    created_at: createdAt,
  };
}
