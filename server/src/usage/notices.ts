/**
 * The shares of a monthly budget that cause an event, and its text. Pure.
 */
import { renderMicros } from "@flotilla/base/money";
import type { BudgetPolicy } from "@flotilla/contract/plans";

/** As the CHECK of budget_notices. */
const NOTICE_PERCENTS = [80, 100] as const;
export type NoticePercent = (typeof NOTICE_PERCENTS)[number];

/** Money in micros. */
export interface Budgeted {
  readonly tenantId: string;
  readonly policy: BudgetPolicy;
  readonly budgetMicros: number;
  /** How far its test clock is ahead, in milliseconds; 0 without one. */
  readonly clockAheadMs: number;
}

/** The shares that are reached, smallest first. */
export const reachedPercents = (usedMicros: number, budgetMicros: number): readonly NoticePercent[] =>
  NOTICE_PERCENTS.filter((percent) => BigInt(usedMicros) * 100n >= BigInt(budgetMicros) * BigInt(percent));

const CONSEQUENCES: Readonly<Record<BudgetPolicy, string>> = {
  none: "",
  notify: "",
  block: "; creates and starts of machines are refused until the month ends",
  stop: "; creates and starts of machines are refused until the month ends, and running machines are stopped",
};

export function noticeText({ policy, budgetMicros }: Budgeted, usedMicros: number, percent: NoticePercent): string {
  const consequence = percent === 100 ? CONSEQUENCES[policy] : "";
  return `${percent} % of the monthly budget is used: ${renderMicros(usedMicros)} of ${renderMicros(budgetMicros)}${consequence}`;
}
