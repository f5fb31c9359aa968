/**
 * Rolling: a few instances of the new release are made beside the others, and each that serves replaces one.
 * Pure.
 *
 * Always: as many instances serve as did before, and at most `batchSize` more than asked are made.
 */
import type { Goal, Phase, Rolling } from "./facts.ts";
import { instances, possible, type Sides } from "./sides.ts";

export function rolling({ batchSize, waitMs }: Omit<Rolling, "type">, sides: Sides): Goal {
  const { count, to, others, now } = sides;
  // Nothing is replaced where nothing runs.
  const batch = others.wanted.length + others.leaving === 0 ? count : batchSize;
  const until = to.serving > 0 && to.serving < count ? (to.servingSince ?? now) + waitMs : now;
  const isPausing = until > now && to.wanted.length <= to.serving;
  const next = isPausing ? to.serving : Math.max(to.wanted.length, to.serving + batch);
  const wanted = possible(Math.min(count, next), batchSize, sides);
  return {
    to: wanted,
    others: Math.min(others.wanted.length, Math.max(0, count - to.serving)),
    refills: false,
    surge: batchSize,
    routed: "all",
    ...phaseOf({ ...sides, wanted, isPausing }),
    ...(isPausing ? { until } : {}),
    isDone: to.serving >= count && others.wanted.length === 0,
  };
}

/** What the new instances wait for, and its sentence. */
export function phaseOf({
  count,
  to,
  others,
  wanted,
  isPausing = false,
}: Pick<Sides, "count" | "to" | "others"> & { readonly wanted: number; readonly isPausing?: boolean }): {
  readonly phase: Phase;
  readonly waitingFor: string;
} {
  const of = `${to.serving} of ${count} new instances serve`;
  if (isPausing) return { phase: "pausing", waitingFor: `${of}; the pause between batches` };
  if (to.running < wanted) return { phase: "placing", waitingFor: `${of}; ${instances(wanted - to.running)} to start` };
  if (to.healthy < wanted)
    return { phase: "checking", waitingFor: `${of}; the health check of ${instances(wanted - to.healthy)} to succeed` };
  if (to.serving < wanted) return { phase: "routing", waitingFor: `${of}; every ingress to know the new instances` };
  return {
    phase: "retiring",
    waitingFor: `${of}; ${instances(others.wanted.length + others.leaving)} to end their requests and stop`,
  };
}
