/**
 * From the rows of an app to what its plan is made from. Pure.
 */
import { type InstanceRow, instanceOf, type Lease } from "./instances.ts";
import type { AppFacts, Instance } from "./rollout/facts.ts";
import type { AppRecord, ReleaseRecord, RolloutRecord } from "./store.ts";

/** Instances that are replaced without a rollout may use this many more places. */
export const SETTLED_SURGE = 1;
/** A flap replaces nothing. */
const UNHEALTHY_MS = 60_000;

export interface AppRows {
  readonly app: AppRecord;
  /** The rollout that is under way. */
  readonly rollout: RolloutRecord | undefined;
  /** The releases of its instances. */
  readonly releases: ReadonlyMap<number, Pick<ReleaseRecord, "spec" | "course">>;
  readonly rows: readonly InstanceRow[];
  readonly leases: readonly Lease[];
}

export function factsOf({ app, rollout, releases, rows, leases }: AppRows): AppFacts {
  const instances: readonly Instance[] = rows.map((row) => {
    const release = releases.get(row.release);
    const isRolledOut = rollout?.to === row.release;
    const checks =
      release !== undefined && release.spec.health !== null && (!isRolledOut || release.course.usesHealthCheck);
    return instanceOf(row, leases, checks);
  });
  const graces = [...releases.values()].map(({ spec }) => spec.graceMs);
  return {
    count: app.count,
    isDestroyed: app.isDestroyed,
    current: app.currentRelease,
    rollout:
      rollout === undefined
        ? null
        : {
            to: rollout.to,
            strategy: rollout.strategy,
            isPromoted: rollout.isPromoted,
            progress: rollout.progress,
            placingMs: rollout.placingMs,
            checkingMs: rollout.checkingMs,
          },
    instances,
    surge: SETTLED_SURGE,
    graceMs: Math.max(0, ...graces),
    unhealthyMs: UNHEALTHY_MS,
    retryAt: app.retryAt,
  };
}
