/**
 * Converts rows of plans and rates to API answers.
 */
import type { PlanInfo, RateInfo } from "@flotilla/contract/plans";
import type { PlanRow } from "./store.ts";
import type { RateRow } from "./rates-store.ts";

export const planInfo = (row: PlanRow): PlanInfo => ({ ...row, createdAt: new Date(row.createdAt).toISOString() });

export const rateInfo = (row: RateRow): RateInfo => ({
  ...row,
  activeFrom: new Date(row.activeFrom).toISOString(),
  createdAt: new Date(row.createdAt).toISOString(),
});
