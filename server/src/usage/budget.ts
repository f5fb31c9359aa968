/**
 * Refuses actions that cost money when a tenant's monthly budget is used up.
 *
 * Always:
 * - A plan without a budget, or with a policy that only notifies, costs no query.
 * - Running machines continue under `block`, and stop within a period of the budget loop under `stop`. So a month may cost
 *   more than its budget.
 */
import { Refusal } from "@flotilla/contract/errors";
import { renderMicros } from "@flotilla/base/money";
import type { Context } from "../context.ts";
import { readTenantUsage } from "./intervals-store.ts";
import type { Ceilings } from "./quota.ts";
import { readBillingTime } from "./store.ts";
import { costBreakdown, monthUpTo } from "./usage.ts";

/** The cost of a tenant's usage in its current month up to now, in micros. */
export async function costOfMonth({ clock, db }: Context, tenantId: string): Promise<number> {
  const now = clock.now();
  const month = monthUpTo(await readBillingTime(db, tenantId, now));
  return costBreakdown((await readTenantUsage(db, { tenantId, now, ...month })).lines).totalMicros;
}

/** Throws a Refusal when the plan's policy blocks at its budget and the budget is used up. */
export async function refuseOverBudget(context: Context, tenantId: string, ceilings: Ceilings): Promise<void> {
  const { budgetPolicy, monthlyBudgetMicros, planName } = ceilings;
  if (monthlyBudgetMicros === null || (budgetPolicy !== "block" && budgetPolicy !== "stop")) return;
  const used = await costOfMonth(context, tenantId);
  if (used < monthlyBudgetMicros) return;
  const now = new Date(await readBillingTime(context.db, tenantId, context.clock.now()));
  const next = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1)).toISOString();
  throw new Refusal(
    "payment_required",
    `monthly budget used up: your ${planName} plan has a budget of ${renderMicros(monthlyBudgetMicros)}, and ${renderMicros(used)} are used; ask the operator for a larger budget, or wait for the next month, which begins at ${next}`,
  );
}
