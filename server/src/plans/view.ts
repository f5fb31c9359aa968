/**
 * Converts rows of plans and rates to API answers.
 */
import type { PlanInfo, RateInfo } from "@flotilla/contract/plans";
import type { PlanRow } from "./store.ts";
import type { RateRow } from "./rates-store.ts";

export const planInfo = (row: PlanRow): PlanInfo => ({
  ...row,
  ...UNPRICED,
  createdAt: new Date(row.createdAt).toISOString(),
});

/** Existing clients expect numbers for what has no price, too. */
const UNPRICED = {
  rateBaseHourMicros: 0,
  rateDiskGbHourMicros: 0,
  monthlyFeeMicros: 0,
  freeCreditMicros: 0,
};

export const rateInfo = (row: RateRow): RateInfo => ({
  ...row,
  activeFrom: new Date(row.activeFrom).toISOString(),
  createdAt: new Date(row.createdAt).toISOString(),
});
