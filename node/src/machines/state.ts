/**
 * The state of a machine on this node: the facts that a decision needs, and the state that is reported to the
 * server.
 *
 * Pure. Always: the reported state (`ObservedState`) is computed from the plan's next action and never
 * stored, so a machine that still has something to do cannot look settled.
 */
import type { ImageFault } from "@flotilla/contract/errors";
import type { DesiredState, ObservedState } from "@flotilla/contract/link/link";
import type { ReplacementMode } from "./replacing.ts";

/**
 * What is known of the VM of a journaled boot. `lost`: not connected, because the node agent was restarted or
 * the channel broke. `unreachable`: it was looked for, and its guest agent does not answer. `up`: its guest
 * agent has answered. `configured`: it also has its identity. `paused`: for a move, at either end of it.
 * `ended`: its process has ended.
 */
export const VM_STATES = ["lost", "unreachable", "up", "configured", "paused", "ended"] as const;
export type VmState = (typeof VM_STATES)[number];

/** How an attempt to run the machine ended without a request; applies only to its generation. */
interface EndedBy<Kind extends string> {
  readonly generation: number;
  readonly kind: Kind;
  /** A text for the machine's owner. */
  readonly reason: string;
  /** null or absent: another attempt may succeed. */
  readonly reasonCode?: ImageFault | null;
}

/** `crashed`: it is restarted at `restartAt`, epoch milliseconds. */
export type Ending = EndedBy<"failed" | "poweredOff"> | (EndedBy<"crashed"> & { readonly restartAt: number });

/** Whether its VMs end when no server answers its node (fence.ts). */
export type Fence = "on" | "lifted";

/** The input of a decision about a machine. */
export interface Situation {
  readonly desired: DesiredState;
  readonly generation: number;
  /** The image for the disk has been found and is held. */
  readonly hasImage: boolean;
  readonly hasDisk: boolean;
  /** null: the journal has no boot, so no VMM of this machine exists. */
  readonly vm: VmState | null;
  readonly ending: Ending | null;
  /** Whether a stop suspends it, or keeps the memory of one that is suspended. */
  readonly keepsMemory: boolean;
  /**
   * It is on its way to another node: it is paused, or about to be, until the server says how the move ended.
   */
  readonly isLeaving: boolean;
  /** Its VMM is to be replaced: while it runs, or by a restart. */
  readonly replacing: ReplacementMode | null;
  /** Its memory is saved. */
  readonly hasMemory: boolean;
  /** It could not be suspended in this generation. */
  readonly isSuspendRefused: boolean;
  /**
   * Its host is about to go down, and what its owner permits meanwhile: that it is suspended, or only shut
   * down.
   */
  readonly hostStop: "suspend" | "shutDown" | null;
  /**
   * It is fenced, and no server has acknowledged a heartbeat for too long: another machine may have replaced
   * it.
   */
  readonly isCutOff: boolean;
}

const ACTIONS = [
  "adopt",
  "awaitRestart",
  "awaitHost",
  "awaitLease",
  "ensureImage",
  "makeDisk",
  "boot",
  "resume",
  "configure",
  "replaceVmm",
  "unpause",
  "awaitMove",
  "suspend",
  "discardMemory",
  "shutDown",
  "kill",
  "cleanBoot",
  "removeFiles",
] as const;
export type Action = (typeof ACTIONS)[number];

/** The reported state of a machine while an action is the next one. */
export const STATE_DURING = {
  adopt: "booting",
  awaitRestart: "preparing",
  awaitHost: "preparing",
  awaitLease: "preparing",
  ensureImage: "preparing",
  makeDisk: "preparing",
  boot: "booting",
  resume: "booting",
  configure: "booting",
  // The machine runs on for everyone else.
  replaceVmm: "running",
  unpause: "booting",
  awaitMove: "stopping",
  suspend: "stopping",
  discardMemory: "stopping",
  shutDown: "stopping",
  kill: "stopping",
  cleanBoot: "stopping",
  removeFiles: "stopping",
} as const satisfies Record<Action, ObservedState>;

/**
 * Desired states that abort a running action, because it does not serve them. The other actions are short, or
 * must be finished in any case.
 */
const INTERRUPTED_BY = {
  adopt: ["stopped", "absent"],
  awaitRestart: ["stopped", "absent"],
  awaitHost: ["stopped", "absent"],
  awaitLease: ["stopped", "absent"],
  ensureImage: ["stopped", "absent"],
  makeDisk: ["stopped", "absent"],
  boot: ["stopped", "absent"],
  resume: ["stopped", "absent"],
  configure: ["stopped", "absent"],
  // From the pause on it is finished.
  replaceVmm: ["stopped", "absent"],
  unpause: ["absent"],
  awaitMove: ["running", "stopped", "absent"],
  // A start does not interrupt it: the memory is loaded again then.
  suspend: ["absent"],
  discardMemory: [],
  shutDown: ["absent"],
  kill: [],
  cleanBoot: [],
  removeFiles: [],
} as const satisfies Record<Action, readonly DesiredState[]>;

export function isInterruptedBy(action: Action, desired: DesiredState): boolean {
  return (INTERRUPTED_BY[action] as readonly DesiredState[]).includes(desired);
}

/** Actions whose failure ends the attempt to run the machine. Any other action is retried. */
const ATTEMPT_ACTIONS = [
  "ensureImage",
  "makeDisk",
  "boot",
  "resume",
  "configure",
  "unpause",
] as const satisfies readonly Action[];

export function isAttempt(action: Action): boolean {
  return (ATTEMPT_ACTIONS as readonly Action[]).includes(action);
}
