/**
 * Refuses starts when the machines of a tenant have sent what its plan allows them in a month.
 *
 * Always:
 * - A plan without a ceiling costs no query.
 * - What is sent is known when its node has reported it, so what machines send in the meantime is beyond the
 *   ceiling: a loop stops them (machines/lifetime/budgets-loop.ts).
 */
import type { Context } from "../context.ts";
import { readEgress } from "./egress-store.ts";
import { isEgressUsedUp } from "./notices.ts";
import { type Ceilings, egressRefusal } from "./quota.ts";

/** Throws a Refusal when nothing is left. */
export async function refuseOverEgress(
  { clock, db }: Pick<Context, "clock" | "db">,
  tenantId: string,
  ceilings: Ceilings,
  plansUrl: string | null,
): Promise<void> {
  const { planName, maxEgressGb } = ceilings;
  if (maxEgressGb === null) return;
  const month = await readEgress(db, { tenantId, now: clock.now() });
  if (isEgressUsedUp({ maxEgressGb, sentBytes: month.sentBytes }))
    throw egressRefusal({ planName, maxEgressGb }, month, plansUrl);
}
