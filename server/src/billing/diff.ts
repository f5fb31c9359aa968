/**
 * Computes what the usage of a month would cost at other prices, before they are set. Changes nothing.
 */
import type { PlanDiff } from "@flotilla/contract/billing";
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { listRates, listTenantsOfPlan } from "../plans/rates-store.ts";
import { eachUsageOf } from "../usage/intervals-store.ts";
import { costOrNull, type Rate, type UsageLine } from "../usage/usage.ts";
import { type Month, monthAt } from "./month.ts";
import { notFound } from "../missing.ts";

export interface DiffQuery {
  readonly month?: string;
  readonly rateCpuHourMicros?: number;
  readonly rateMemoryGbHourMicros?: number;
  readonly rateEgressGbMicros?: number;
  readonly rateRegistryGbHourMicros?: number;
}

export async function diffPlan({ db, clock }: Context, planId: string, query: DiffQuery): Promise<PlanDiff> {
  const now = clock.now();
  const month = query.month === undefined ? monthAt(monthAt(now).from - 1) : parseMonthQuery(query.month);
  if (month.from > now) throw new Refusal("invalid_request", `month ${month.id} has not begun; name one that has`);
  const rates = await listRates(db, planId);
  const newest = rates.at(-1);
  if (newest === undefined) throw notFound("plan", planId);
  const planned = {
    id: "planned",
    cpuHourMicros: query.rateCpuHourMicros ?? newest.rateCpuHourMicros,
    memoryGbHourMicros: query.rateMemoryGbHourMicros ?? newest.rateMemoryGbHourMicros,
    egressGbMicros: query.rateEgressGbMicros ?? newest.rateEgressGbMicros,
    registryGbHourMicros: query.rateRegistryGbHourMicros ?? newest.rateRegistryGbHourMicros,
  };
  const ofPlan = new Set(rates.map(({ id }) => id));
  const tenantIds = await listTenantsOfPlan(db, planId, month);
  const tenants: PlanDiff["tenants"] = [];
  for await (const { tenantId, lines: all } of eachUsageOf(db, { tenantIds, now, ...month })) {
    const lines = all.filter(({ rate }) => ofPlan.has(rate.id));
    if (lines.length === 0) continue;
    const micros = costOrNull(lines)?.totalMicros ?? null;
    const plannedMicros = costOrNull(atOneRate(lines, planned))?.totalMicros ?? null;
    const differenceMicros = micros === null || plannedMicros === null ? null : plannedMicros - micros;
    tenants.push({ tenantId, micros, plannedMicros, differenceMicros });
  }
  tenants.sort((one, other) => (one.tenantId < other.tenantId ? -1 : 1));
  const { id: _id, ...prices } = planned;
  return { planId, month: month.id, ...prices, tenants };
}

function parseMonthQuery(id: string): Month {
  if (!/^[12]\d{3}-(0[1-9]|1[0-2])$/.test(id))
    throw new Refusal("invalid_request", "month is not a month; write it as 2026-07", { field: "month" });
  return monthAt(Date.parse(`${id}-01T00:00:00Z`));
}

/** One line for each meter. */
function atOneRate(lines: readonly UsageLine[], rate: Rate): UsageLine[] {
  const amounts = new Map<UsageLine["meter"], bigint>();
  for (const { meter, amount } of lines) amounts.set(meter, (amounts.get(meter) ?? 0n) + amount);
  return [...amounts].map(([meter, amount]) => ({ meter, rate, amount }));
}
