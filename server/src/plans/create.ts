/**
 * Creates a plan. What the request leaves out is taken from the default plan.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { CreatePlanRequest } from "@flotilla/contract/plans";
import type { Context } from "../context.ts";
import { refuseUnsummable } from "./price-bound.ts";
import {
  findPlanMadeAs,
  getDefaultPlan,
  insertPlan,
  listPlans,
  lockPlans,
  lockTenants,
  type PlanRow,
  unsetDefaultPlan,
} from "./store.ts";

/**
 * `newId`: used if the request names no id. A repetition with the same one returns the plan that was made.
 */
export async function createPlan(context: Context, request: CreatePlanRequest, newId: string): Promise<PlanRow> {
  const id = request.id ?? newId;
  const createdAt = context.clock.now();
  const created = await context.db.transaction(async (transaction) => {
    await lockPlans(transaction);
    const known = await findPlanMadeAs(transaction, { id, madeAs: newId, now: createdAt });
    if (known !== undefined) return known;
    const base = await getDefaultPlan(transaction, createdAt);
    const plan = merge(base, request, { id, createdAt });
    refuseUnsummable(plan);
    if (plan.isDefault) {
      await lockTenants(transaction);
      await unsetDefaultPlan(transaction);
    }
    if (!(await insertPlan(transaction, plan, newId))) throw nameTaken(plan, await listPlans(transaction, createdAt));
    return plan;
  });
  // This server's caches drop the old default before the answer.
  if (created.isDefault) await context.db.notify("tenants", id);
  return created;
}

function nameTaken({ id, name }: PlanRow, plans: readonly PlanRow[]): Refusal {
  const text = plans.some((plan) => plan.id === id)
    ? `a plan with the id ${id} exists already; choose another id`
    : `the name ${name} is already that of plan ${plans.find((plan) => plan.name === name)?.id}; choose another name`;
  return new Refusal("name_taken", text);
}

function merge(
  base: PlanRow,
  request: CreatePlanRequest,
  { id, createdAt }: { readonly id: string; readonly createdAt: number },
): PlanRow {
  return {
    id,
    name: request.name,
    isDefault: request.isDefault ?? false,
    budgetPolicy: request.budgetPolicy ?? base.budgetPolicy,
    maxApps: request.maxApps ?? base.maxApps,
    maxCpus: request.maxCpus ?? base.maxCpus,
    maxMemoryMb: request.maxMemoryMb ?? base.maxMemoryMb,
    maxDiskGb: request.maxDiskGb ?? base.maxDiskGb,
    maxMachines: request.maxMachines ?? base.maxMachines,
    maxConcurrentMachines: request.maxConcurrentMachines ?? base.maxConcurrentMachines,
    maxTotalCpus: request.maxTotalCpus ?? base.maxTotalCpus,
    maxTotalMemoryMb: request.maxTotalMemoryMb ?? base.maxTotalMemoryMb,
    maxTotalDiskGb: request.maxTotalDiskGb ?? base.maxTotalDiskGb,
    rateCpuHourMicros: request.rateCpuHourMicros ?? base.rateCpuHourMicros,
    rateMemoryGbHourMicros: request.rateMemoryGbHourMicros ?? base.rateMemoryGbHourMicros,
    rateEgressGbMicros: request.rateEgressGbMicros ?? base.rateEgressGbMicros,
    rateRegistryGbHourMicros: request.rateRegistryGbHourMicros ?? base.rateRegistryGbHourMicros,
    rateExecMicros: request.rateExecMicros ?? base.rateExecMicros,
    rateRequestsPerSecond: request.rateRequestsPerSecond ?? base.rateRequestsPerSecond,
    rateBurst: request.rateBurst ?? base.rateBurst,
    maxEgressGb: request.maxEgressGb ?? base.maxEgressGb,
    maxPackageGb: request.maxPackageGb ?? base.maxPackageGb,
    monthlyBudgetMicros: request.monthlyBudgetMicros ?? base.monthlyBudgetMicros,
    createdAt,
  };
}
