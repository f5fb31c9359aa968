/**
 * The shares of a monthly budget, and of what machines may send in a month, that cause an event. Pure.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { BudgetPolicy } from "@flotilla/contract/plans";
import { BYTES_PER_GB } from "@flotilla/contract/traffic";

/** As the CHECK of budget_notices. */
export const NOTICE_PERCENTS = [80, 100] as const;
export type NoticePercent = (typeof NOTICE_PERCENTS)[number];

/** Money in micros. */
export interface Budgeted {
  readonly tenantId: string;
  readonly policy: BudgetPolicy;
  readonly budgetMicros: number;
  /**
   * What running machines may still cost until they are checked again; 0 unless the policy blocks or stops.
   */
  readonly heldMicros: number;
  /** How far its test clock is ahead, in milliseconds; 0 without one. */
  readonly clockAheadMs: number;
}

/** The shares that are reached, smallest first. */
export const reachedPercents = (takenMicros: number, budgetMicros: number): readonly NoticePercent[] =>
  NOTICE_PERCENTS.filter((percent) => BigInt(takenMicros) * 100n >= BigInt(budgetMicros) * BigInt(percent));

/** Whether no start fits any more, and running machines are stopped where the policy says so. */
export const isUsedUp = ({ budgetMicros, heldMicros }: Budgeted, usedMicros: number): boolean =>
  usedMicros >= budgetMicros || usedMicros + heldMicros > budgetMicros;

/** What the machines of a tenant have sent in its month, and may send. */
export interface EgressUse {
  readonly tenantId: string;
  readonly maxEgressGb: number;
  readonly sentBytes: number;
  /** How far its test clock is ahead, in milliseconds; 0 without one. */
  readonly clockAheadMs: number;
}

/** Whether machines may send nothing more. */
export const isEgressUsedUp = ({ maxEgressGb, sentBytes }: Pick<EgressUse, "maxEgressGb" | "sentBytes">): boolean =>
  sentBytes >= maxEgressGb * BYTES_PER_GB;

/** An event to write. */
export interface Notice {
  readonly tenantId: string;
  readonly bound: "budget" | "egress";
  readonly percent: NoticePercent;
  readonly event: NewEvent;
}

/** The events of these shares, or of all that are reached. */
export const noticesOf = (
  budgeted: Budgeted,
  usedMicros: number,
  percents: readonly NoticePercent[] = reachedPercents(usedMicros + budgeted.heldMicros, budgeted.budgetMicros),
): readonly Notice[] =>
  percents.map((percent) => {
    const { tenantId, budgetMicros, heldMicros, policy } = budgeted;
    const data = { percent, usedMicros, budgetMicros, heldMicros, policy };
    return { tenantId, bound: "budget", percent, event: { type: "tenant.budgetUsed", data } };
  });

/** As `noticesOf`, of what is sent. */
export const egressNoticesOf = (
  { tenantId, maxEgressGb, sentBytes }: EgressUse,
  percents: readonly NoticePercent[] = reachedPercents(sentBytes, maxEgressGb * BYTES_PER_GB),
): readonly Notice[] =>
  percents.map((percent) => {
    const data = { percent, sentBytes, maxEgressGb };
    return { tenantId, bound: "egress", percent, event: { type: "tenant.egressUsed", data } };
  });
