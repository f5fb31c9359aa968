/**
 * Counts of the two sides of a rollout: instances of the new release, and all others. Pure.
 */
import type { Instance } from "./facts.ts";

/** Instances that are to stay, and what is left of the others. */
export interface Side {
  /** Not retired, and neither failed nor lost. */
  readonly wanted: readonly Instance[];
  readonly running: number;
  readonly healthy: number;
  /** Healthy, in the table, and every live ingress knows it. */
  readonly serving: number;
  /** Retired, and they may still run; those of lost nodes are not counted. */
  readonly leaving: number;
  /** When the last of those that serve became healthy; null: none serves. */
  readonly servingSince: number | null;
}

const isUsable = ({ state }: Instance): boolean => state === "unmade" || state === "starting" || state === "running";
export const isWanted = (instance: Instance): boolean => instance.retiredAt === null && isUsable(instance);
export const isHealthy = ({ state, health }: Instance): boolean => state === "running" && health === "healthy";
export const serves = (instance: Instance): boolean =>
  isHealthy(instance) && instance.isRouted && instance.isConfirmed && instance.retiredAt === null;

/** It uses its node for some time yet. */
const isLeaving = ({ retiredAt, state }: Instance): boolean =>
  retiredAt !== null && (state === "starting" || state === "running");

/** The new release's, and all others with those that are replaced because their nodes are drained. */
export function sidesOf(all: readonly Instance[], release: number | null): Pick<Sides, "to" | "others"> {
  const isNew = (instance: Instance): boolean => instance.release === release && !instance.isDrained;
  return { to: sideOf(all.filter(isNew)), others: sideOf(all.filter((each) => !isNew(each))) };
}

function sideOf(instances: readonly Instance[]): Side {
  const wanted = instances.filter(isWanted);
  const serving = wanted.filter(serves);
  return {
    wanted,
    running: wanted.filter(({ state }) => state === "running").length,
    healthy: wanted.filter(isHealthy).length,
    serving: serving.length,
    leaving: instances.filter(isLeaving).length,
    servingSince: serving.reduce<number | null>((last, { healthSince }) => Math.max(last ?? 0, healthSince ?? 0), null),
  };
}

/** What a strategy decides from. */
export interface Sides {
  readonly count: number;
  readonly to: Side;
  readonly others: Side;
  /** The rollout's traffic belongs to the new release (Rollout of facts.ts). */
  readonly isPromoted: boolean;
  /** No release was rolled out before. */
  readonly isFirst: boolean;
  readonly now: number;
}

/** How many instances may be made now, when `surge` more than asked may use nodes. */
export const roomFor = (surge: number, { count, to, others }: Pick<Sides, "count" | "to" | "others">): number =>
  Math.max(0, count + surge - to.wanted.length - to.leaving - others.wanted.length - others.leaving);

/** How many instances of the new release there can be now, of those that are to be. */
export const possible = (wanted: number, surge: number, sides: Sides): number =>
  Math.min(wanted, sides.to.wanted.length + roomFor(surge, sides));

/** Numbers with their noun: `1 instance`, `2 instances`. */
export const instances = (count: number): string => `${count} instance${count === 1 ? "" : "s"}`;
