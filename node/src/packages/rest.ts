/**
 * Whether a machine is exported now: facts → why not.
 */
import type { ExportFault } from "@flotilla/contract/link/packages";

export interface RestFacts {
  /** It is to be stopped, and nothing of it runs. */
  readonly isAtRest: boolean;
  /** Its memory is saved, and fits only the disk as it is. */
  readonly isSuspended: boolean;
  /** It is being handed over to another node. */
  readonly isLeaving: boolean;
  /** It has been started once, so that there is a disk. */
  readonly hasDisk: boolean;
}

export interface ExportRefusal {
  readonly code: ExportFault;
  readonly reason: string;
}

/** First match wins; null: it is exported. Pure. */
export function refusalOf(facts: RestFacts): ExportRefusal | null {
  if (facts.isLeaving) return { code: "not_stopped", reason: "the machine moves to another node" };
  if (facts.isSuspended)
    return {
      code: "suspended",
      reason: "the machine is suspended, and a package has no memory: start it, or stop it without its memory",
    };
  if (!facts.isAtRest) return { code: "not_stopped", reason: "the machine is not stopped: stop it first" };
  if (!facts.hasDisk) return { code: "unreadable", reason: "the machine has no disk yet: start it once, and stop it" };
  return null;
}
