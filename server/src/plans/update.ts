/**
 * Changes a plan's name, ceilings and budget. They hold for all tenants of the plan from then on; what runs
 * keeps running.
 *
 * Always: a price is never changed here, because recorded usage refers to it; rates-store.ts adds prices for
 * the future.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { UpdatePlanRequest } from "@flotilla/contract/plans";
import type { Context } from "../context.ts";
import { refuseUnsummable } from "./price-bound.ts";
import { listRates } from "./rates-store.ts";
import { findPlan, lockPlans, type PlanRow, writePlan } from "./store.ts";
import { notFound } from "../missing.ts";

export async function updatePlan(context: Context, id: string, request: UpdatePlanRequest): Promise<PlanRow> {
  const updated = await context.db.transaction(async (transaction) => {
    await lockPlans(transaction);
    const now = context.clock.now();
    const before = await findPlan(transaction, id, now);
    if (before === undefined) throw notFound("plan", id);
    refuseUnchangeable(before, request);
    const plan = changed(before, request);
    // Prices of before the bound stay, so only larger totals are checked. A price of the future must fit them
    // too.
    if (plan.maxTotalCpus > before.maxTotalCpus || plan.maxTotalMemoryMb > before.maxTotalMemoryMb) {
      for (const rate of (await listRates(transaction, id)).filter(({ activeFrom }) => activeFrom > now))
        refuseUnsummable({ ...plan, ...rate });
      refuseUnsummable(plan);
    }
    if (!(await writePlan(transaction, plan)))
      throw new Refusal("name_taken", `a plan with the name ${plan.name} exists; choose another one`);
    return plan;
  });
  // The transaction notifies the other servers; this one's caches drop the old ceilings before the answer.
  await context.db.notify("tenants", id);
  return updated;
}

const PRICES = [
  "rateCpuHourMicros",
  "rateMemoryGbHourMicros",
  "rateEgressGbMicros",
  "rateRegistryGbHourMicros",
] as const;

/** Refuses other values of fields that may only be sent back as they were read. */
function refuseUnchangeable(before: PlanRow, request: UpdatePlanRequest): void {
  for (const field of PRICES)
    if ((request[field] ?? before[field]) !== before[field])
      throw new Refusal(
        "invalid_request",
        `${field} cannot be changed, because recorded usage has its price; POST /v1/plans/${before.id}/rates sets a price for the future`,
        { field, call: `POST /v1/plans/${before.id}/rates` },
      );
  if ((request.isDefault ?? before.isDefault) !== before.isDefault)
    throw new Refusal("invalid_request", "isDefault cannot be changed; POST /v1/plans makes a new default plan", {
      field: "isDefault",
      call: "POST /v1/plans",
    });
}

const changed = (before: PlanRow, request: UpdatePlanRequest): PlanRow => ({
  ...before,
  name: request.name ?? before.name,
  budgetPolicy: request.budgetPolicy ?? before.budgetPolicy,
  maxApps: request.maxApps ?? before.maxApps,
  maxCpus: request.maxCpus ?? before.maxCpus,
  maxMemoryMb: request.maxMemoryMb ?? before.maxMemoryMb,
  maxDiskGb: request.maxDiskGb ?? before.maxDiskGb,
  maxMachines: request.maxMachines ?? before.maxMachines,
  maxConcurrentMachines: request.maxConcurrentMachines ?? before.maxConcurrentMachines,
  maxTotalCpus: request.maxTotalCpus ?? before.maxTotalCpus,
  maxTotalMemoryMb: request.maxTotalMemoryMb ?? before.maxTotalMemoryMb,
  maxTotalDiskGb: request.maxTotalDiskGb ?? before.maxTotalDiskGb,
  rateExecMicros: request.rateExecMicros ?? before.rateExecMicros,
  rateRequestsPerSecond: request.rateRequestsPerSecond ?? before.rateRequestsPerSecond,
  rateBurst: request.rateBurst ?? before.rateBurst,
  maxEgressGb: request.maxEgressGb === undefined ? before.maxEgressGb : request.maxEgressGb,
  maxPackageGb: request.maxPackageGb === undefined ? before.maxPackageGb : request.maxPackageGb,
  monthlyBudgetMicros:
    request.monthlyBudgetMicros === undefined ? before.monthlyBudgetMicros : request.monthlyBudgetMicros,
});
