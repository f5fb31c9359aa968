/**
 * Whether a point of a machine is made now: facts → why not.
 */
export interface PointFacts {
  /** It is stopped, and nothing of it runs. */
  readonly isAtRest: boolean;
  /** Its memory is saved, and fits only the disk as it is. */
  readonly isSuspended: boolean;
  readonly isRunning: boolean;
  readonly isToRun: boolean;
  /** A move sends what it has, or may. */
  readonly isMoving: boolean;
  readonly isReplacing: boolean;
  readonly isHostStopping: boolean;
  readonly hasMemory: boolean;
  /** Its VM can be copied while it runs. */
  readonly canBranch: boolean;
  /** Disks that its own is on top of, besides the image's file. */
  readonly layers: number;
}

export interface PointRefusal {
  readonly code: "not_running" | "refused";
  readonly reason: string;
}

/** More would slow every read of the disk, and each start opens them all. */
export const LAYERS_MAX = 16;

const refused = (reason: string): PointRefusal => ({ code: "refused", reason });

/** First match wins; null: it is made. Pure. */
export function refusalOf(facts: PointFacts): PointRefusal | null {
  if (facts.isMoving) return refused("the machine moves to another node");
  if (facts.layers >= LAYERS_MAX)
    return refused(`its disk is on top of ${facts.layers} others: they become one while the machine runs`);
  if (facts.isSuspended) return refused("the machine is suspended: start it, or stop it without its memory");
  if (facts.isAtRest)
    return facts.hasMemory ? { code: "not_running", reason: "the machine does not run, so it has no memory" } : null;
  if (facts.isHostStopping) return refused("its host is about to go down");
  if (!facts.isToRun) return refused("the machine is being stopped");
  if (facts.isReplacing) return refused("the machine gets another VMM");
  if (!facts.isRunning) return { code: "not_running", reason: "the machine does not run yet" };
  if (!facts.canBranch) return refused("this node cannot branch machines while they run");
  return null;
}
