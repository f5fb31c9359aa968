/**
 * Sets a plan's prices from an instant on.
 *
 * Always: the instant is at least RATE_NOTICE_MS ahead, so that no usage was recorded at an older price by
 * then.
 */
import { Refusal } from "@flotilla/contract/errors";
import { type CreateRateRequest, RATE_NOTICE_MS } from "@flotilla/contract/plans";
import type { Context } from "../context.ts";
import { parseInstant } from "../api/instant.ts";
import { refuseUnsummable } from "./price-bound.ts";
import { findRate, insertRate, listRates, type RateRow } from "./rates-store.ts";
import { findPlan, lockPlans } from "./store.ts";
import { notFound } from "../missing.ts";

/** `id`: of the new rate. A repetition with the same one returns the rate that was made. */
export async function setRate(
  { clock, db }: Context,
  planId: string,
  request: CreateRateRequest & { readonly id: string },
): Promise<RateRow> {
  const { id } = request;
  const made = await findRate(db, id);
  if (made !== undefined) return made;
  const now = clock.now();
  const earliest = now + RATE_NOTICE_MS;
  const { activeFrom: requested } = request;
  const activeFrom = requested === undefined || requested === null ? earliest : parseInstant("activeFrom", requested);
  if (activeFrom < earliest)
    throw new Refusal(
      "invalid_request",
      `activeFrom is too early: a price begins at least ${RATE_NOTICE_MS / 1000} s after it is set, here at ${new Date(earliest).toISOString()}`,
      { field: "activeFrom" },
    );
  return await db.transaction(async (transaction) => {
    // The plan's totals do not change meanwhile (update.ts).
    await lockPlans(transaction);
    const before = (await listRates(transaction, planId)).findLast((rate) => rate.activeFrom <= activeFrom);
    if (before === undefined) throw notFound("plan", planId);
    const rate = {
      ...{ id, planId, activeFrom, createdAt: now },
      rateCpuHourMicros: request.rateCpuHourMicros ?? before.rateCpuHourMicros,
      rateMemoryGbHourMicros: request.rateMemoryGbHourMicros ?? before.rateMemoryGbHourMicros,
      rateEgressGbMicros: request.rateEgressGbMicros ?? before.rateEgressGbMicros,
      rateRegistryGbHourMicros: request.rateRegistryGbHourMicros ?? before.rateRegistryGbHourMicros,
    };
    const plan = await findPlan(transaction, planId, now);
    if (plan !== undefined) refuseUnsummable({ ...plan, ...rate });
    if (!(await insertRate(transaction, rate)))
      throw new Refusal(
        "name_taken",
        `plan ${planId} has another price from ${new Date(activeFrom).toISOString()} on; choose another instant`,
      );
    return rate;
  });
}
