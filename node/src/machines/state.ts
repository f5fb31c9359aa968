/**
 * Where a machine is on this node: the facts that a decision needs, and the word the server is told.
 *
 * Pure. Always: what is reported (`ObservedState`) is computed from the next action that the plan names, never stored,
 * so a machine that still has something to do can not look settled.
 */
import type { ImageFault } from "@flotilla/contract/errors";
import type { DesiredState, ObservedState } from "@flotilla/contract/link";

/**
 * What is known of the VM of a journaled boot.
 * `lost`: nobody holds it: the agent came back, or the channel broke. `unreachable`: it was looked for and its agent
 * does not answer. `up`: its agent has answered. `ready`: configured as well. `ended`: its process is gone.
 */
export const VM_STATES = ["lost", "unreachable", "up", "configured", "ended"] as const;
export type VmState = (typeof VM_STATES)[number];

/** How an attempt to run the machine ended without anybody asking; counts only for the generation it belongs to. */
interface EndedBy<Kind extends string> {
  readonly generation: number;
  readonly kind: Kind;
  /** For the machine's owner. */
  readonly reason: string;
  /** Absent in journals of earlier versions; null or absent: another attempt may succeed. */
  readonly reasonCode?: ImageFault | null;
}

/** `crashed`: it is started again at `restartAt`, epoch milliseconds. */
export type Ending = EndedBy<"failed" | "poweredOff"> | (EndedBy<"crashed"> & { readonly restartAt: number });

/** Everything a decision about a machine rests on. */
export interface Situation {
  readonly desired: DesiredState;
  readonly generation: number;
  /** The image that the disk is to be made from has been found and is held. */
  readonly hasImage: boolean;
  readonly hasDisk: boolean;
  /** null: no boot stands in the journal, so no VMM of this machine exists. */
  readonly vm: VmState | null;
  readonly ending: Ending | null;
}

const ACTIONS = [
  "adopt",
  "awaitRestart",
  "ensureImage",
  "makeDisk",
  "boot",
  "configure",
  "shutDown",
  "kill",
  "cleanBoot",
  "removeFiles",
] as const;
export type Action = (typeof ACTIONS)[number];

/** What a machine is called while an action is the next thing to do. */
export const STATE_DURING = {
  adopt: "booting",
  awaitRestart: "preparing",
  ensureImage: "preparing",
  makeDisk: "preparing",
  boot: "booting",
  configure: "booting",
  shutDown: "stopping",
  kill: "stopping",
  cleanBoot: "stopping",
  removeFiles: "stopping",
} as const satisfies Record<Action, ObservedState>;

/**
 * Wishes that end a running action early, because what it works for is not wanted any more. The others are short, or
 * have to be finished anyway.
 */
const INTERRUPTED_BY = {
  adopt: ["stopped", "absent"],
  awaitRestart: ["stopped", "absent"],
  ensureImage: ["stopped", "absent"],
  makeDisk: [],
  boot: ["stopped", "absent"],
  configure: ["stopped", "absent"],
  shutDown: ["absent"],
  kill: [],
  cleanBoot: [],
  removeFiles: [],
} as const satisfies Record<Action, readonly DesiredState[]>;

export function isInterruptedBy(action: Action, desired: DesiredState): boolean {
  return (INTERRUPTED_BY[action] as readonly DesiredState[]).includes(desired);
}

/** Actions whose failure ends the attempt to run the machine; the failure of any other is tried again. */
const ATTEMPT_ACTIONS = ["ensureImage", "makeDisk", "boot", "configure"] as const satisfies readonly Action[];

export function isAttempt(action: Action): boolean {
  return (ATTEMPT_ACTIONS as readonly Action[]).includes(action);
}
