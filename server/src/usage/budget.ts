/**
 * Refuses actions that cost money when a tenant's monthly budget is used up.
 *
 * Always:
 * - A plan without a budget, or with a policy that only notifies, costs no query.
 * - What machines may still cost until they are checked again is held (holds-store.ts), and counts as used: a
 *   start is refused when what is spent, what is held and its own first window do not fit. The statement that
 *   starts a machine decides that again under a lock.
 */
import { Refusal } from "@flotilla/contract/errors";
import { renderMicros } from "@flotilla/base/money";
import type { Context } from "../context.ts";
import { HOLD_MS, readCommitment } from "./holds-store.ts";
import type { Ceilings } from "./quota.ts";

/** Whether the budget of the plan refuses starts. */
export const hasBlockingBudget = ({ budgetPolicy, monthlyBudgetMicros }: Ceilings): boolean =>
  monthlyBudgetMicros !== null && (budgetPolicy === "block" || budgetPolicy === "stop");

/**
 * Throws a Refusal when the plan's policy blocks at its budget and the budget is used up, or has no room for
 * the machine that is to be started.
 */
export async function refuseOverBudget(
  { clock, db }: Pick<Context, "clock" | "db">,
  tenantId: string,
  ceilings: Ceilings,
  machine?: { readonly id: string; readonly cpus: number; readonly memoryMb: number },
): Promise<void> {
  const { monthlyBudgetMicros, planName } = ceilings;
  if (monthlyBudgetMicros === null || !hasBlockingBudget(ceilings)) return;
  const { spent, held, needed, nextMonth } = await readCommitment(db, { tenantId, now: clock.now(), machine });
  const taken = spent + held;
  if (taken < monthlyBudgetMicros && taken + needed <= monthlyBudgetMicros) return;
  const what = machine === undefined ? "another machine" : "a start";
  const isUsedUp = spent >= monthlyBudgetMicros;
  const windows = `the next ${HOLD_MS / 1000} s of running machines`;
  throw new Refusal(
    "payment_required",
    `${isUsedUp ? "monthly budget used up" : `${what} does not fit in the monthly budget`}: your ${planName} plan has a budget of ${renderMicros(monthlyBudgetMicros)}, and ${renderMicros(spent)} are used${
      held > 0 ? `, with ${renderMicros(held)} held for ${windows}` : ""
    }${needed > 0 ? `; a start needs ${renderMicros(needed)}` : ""}; ask the operator for a larger budget, or wait for the next month, which begins at ${new Date(nextMonth).toISOString()}`,
  );
}
