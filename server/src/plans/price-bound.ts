/**
 * Refuses prices at which a tenant's month could not be summed exactly. Pure.
 *
 * Always: a month in which a tenant uses all that its plan allows costs at most MONTH_MICROS_MAX. Answers
 * have micros as JSON numbers, which are exact up to 2^53, so the sum of fifteen years of such months is
 * exact, also of invoices that are not paid. A test clock is at most ten years ahead.
 */
import { Refusal } from "@flotilla/contract/errors";

const MONTH_HOURS_MAX = 31 * 24;
const MB_PER_GB = 1024;
/** 50 million units of the currency. */
const MONTH_MICROS_MAX = 5 * 10 ** 13;
const MICROS_PER_UNIT = 1_000_000;

export interface PricedPlan {
  readonly maxTotalCpus: number;
  readonly maxTotalMemoryMb: number;
  readonly rateCpuHourMicros: number;
  readonly rateMemoryGbHourMicros: number;
}

/** Throws a Refusal when the month costs more. */
export function refuseUnsummable(plan: PricedPlan): void {
  const hourMicros =
    plan.maxTotalCpus * plan.rateCpuHourMicros + (plan.maxTotalMemoryMb / MB_PER_GB) * plan.rateMemoryGbHourMicros;
  const monthMicros = hourMicros * MONTH_HOURS_MAX;
  if (monthMicros <= MONTH_MICROS_MAX) return;
  const [most, units] = [MONTH_MICROS_MAX, monthMicros].map((micros) => Math.ceil(micros / MICROS_PER_UNIT));
  throw new Refusal(
    "invalid_body",
    `the prices are too high for the plan's totals: ${plan.maxTotalCpus} vCPUs and ${plan.maxTotalMemoryMb} MB of memory for a month cost ${units} units, and sums are exact up to ${most} a month; lower the prices or the totals`,
  );
}
