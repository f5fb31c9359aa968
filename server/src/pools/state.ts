/**
 * What a pool does with each of its machines. Pure: a list of rules, the first that applies is taken.
 *
 * Always: a machine that was used, or claimed, is never deleted by its pool.
 */
import type { PoolInfo } from "@flotilla/contract/pools";
import type { Static } from "@flotilla/contract/schema";
import type { MachinePhase } from "../machines/state.ts";

/** A machine that waits, or is to be deleted. Instants are epoch milliseconds. */
export interface Member {
  readonly machineId: string;
  /** null: the machine was not made yet. */
  readonly phase: MachinePhase | null;
  /** It has an activity of a user. */
  readonly isUsed: boolean;
  readonly isDiscarded: boolean;
  /** Its node is lost, and its fence has ended it there (decision 63). */
  readonly isLost: boolean;
  /** Since when it runs; null: it does not. */
  readonly readyAt: number | null;
}

export interface PoolRules {
  readonly isDeleted: boolean;
  /** null: for ever. */
  readonly maxIdleSeconds: number | null;
}

/**
 * `make`: create and start it. `release`: it belongs to its user now. `discard`: delete it. `forget`: it is
 * gone. `wait`: it is as it should be.
 */
export type MemberAction = "make" | "release" | "discard" | "forget" | "wait";

interface Rule {
  readonly when: string;
  readonly applies: (member: Member, pool: PoolRules, now: number) => boolean;
  readonly action: MemberAction;
}

const isGone = ({ phase }: Member): boolean => phase === "deleted" || phase === "deleting";

const RULES: readonly Rule[] = [
  { when: "it was deleted", applies: isGone, action: "forget" },
  {
    when: "it is to be deleted and was never made",
    applies: ({ isDiscarded, phase }) => isDiscarded && phase === null,
    action: "forget",
  },
  { when: "it is to be deleted", applies: ({ isDiscarded }) => isDiscarded, action: "discard" },
  { when: "it was used without a claim", applies: ({ isUsed }) => isUsed, action: "release" },
  { when: "its pool was deleted", applies: (_, { isDeleted }) => isDeleted, action: "discard" },
  { when: "its node is lost", applies: ({ isLost }) => isLost, action: "discard" },
  { when: "it does not exist yet", applies: ({ phase }) => phase === null || phase === "created", action: "make" },
  {
    when: "it does not run any more, or could not be started",
    applies: ({ phase }) => phase === "failed" || phase === "stopped",
    action: "discard",
  },
  {
    when: "it has waited longer than the pool allows",
    applies: ({ readyAt }, { maxIdleSeconds }, now) =>
      maxIdleSeconds !== null && readyAt !== null && now - readyAt > maxIdleSeconds * 1000,
    action: "discard",
  },
];

export const nextAction = (member: Member, pool: PoolRules, now: number): MemberAction =>
  RULES.find(({ applies }) => applies(member, pool, now))?.action ?? "wait";

/**
 * Whether an error is over. Before that nothing says that the next machine can be made: those that run may be
 * older than the error.
 */
export const isFull = (members: readonly Member[], targetSize: number): boolean =>
  members.filter(({ phase, isDiscarded }) => phase === "running" && !isDiscarded).length >= targetSize;

const RETRY_MS = 30_000;
const DOUBLINGS_MAX = 3;

/** How long a pool makes no machine after an error. `failures`: those before it, in a row. */
export const retryMs = (failures: number): number => RETRY_MS * 2 ** Math.min(failures, DOUBLINGS_MAX);

type PoolStatus = Static<typeof PoolInfo>["status"];

export function statusOf(pool: { readonly error: string | null; idleCount: number; targetSize: number }): PoolStatus {
  if (pool.idleCount >= pool.targetSize) return "ready";
  return pool.error === null ? "filling" : "degraded";
}
