/**
 * What a move of a machine does next: facts → one action and the step of the operation to which it belongs,
 * or how the move ends.
 *
 * Pure: no clock, no database, no nodes. worker.ts looks, executes the action and asks again. RULES holds
 * every decision; the table above it shows them.
 *
 * Invariants, which plan.test.ts checks for all combinations of facts:
 * 1. The owner changes only when the target has the machine: paused with its memory, or stopped with every
 *    file.
 * 2. Files that change are copied, and made a machine, only when nothing of the machine runs.
 * 3. Once the owner has changed, nothing but the removal of copies and the start is done, and nothing refuses
 *    it.
 * 4. A machine that no move holds is not stopped, paused or copied as a stopped one.
 * 5. From any facts, with actions that work, a move ends within a bounded number of actions.
 */
import type { MoveEffect } from "./memory.ts";

/** The steps that users see, in their order. */
export const MOVE_STEPS = {
  hold: "choose its node",
  stop: "stop it",
  copy: "copy its files",
  change: "hand it over",
  start: "start it there",
} as const;
export type MoveStep = keyof typeof MOVE_STEPS;

/**
 * What the machine's row says. `free`: no move holds it. `held`: this move does. `taken`: another move does.
 * `moved`: the target owns it, by this move.
 */
export const ROW_STATES = ["deleted", "free", "taken", "held", "moved"] as const;
export type RowState = (typeof ROW_STATES)[number];

/**
 * What the target has. `part`: perhaps some files. `files`: every file. `machine`: a stopped machine that is
 * the one of the row as it is now; or there is nothing to have. `paused`: the machine with its memory, which
 * the source has paused.
 */
export const ARRIVALS = ["part", "files", "machine", "paused"] as const;
export type Arrival = (typeof ARRIVALS)[number];

export interface MoveFacts {
  readonly row: RowState;
  /** This move has held the machine, here or on another server. */
  readonly wasHeld: boolean;
  /** The machine is to run. */
  readonly isActive: boolean;
  /** It is known what its node has of it. */
  readonly isDescribed: boolean;
  /**
   * What the move does to it on the node that is chosen for it; null: none is chosen for the row as it is
   * now.
   */
  readonly effect: MoveEffect | null;
  /** Its node can send files of it while it runs. */
  readonly canSendEarly: boolean;
  /** This was tried with the chosen node. */
  readonly isEarlyTried: boolean;
  /** Its node has done what is desired: nothing of a held machine runs. */
  readonly isSettled: boolean;
  /** Its memory is to move with it. */
  readonly keepsMemory: boolean;
  /** The target has its memory and its disk as of points since which its node knows what has changed. */
  readonly hasPoints: boolean;
  /** Its node has reported its present run. */
  readonly isRunReported: boolean;
  /** Its node cannot save its memory. */
  readonly isSuspendRefused: boolean;
  readonly arrival: Arrival;
  /** Copies on nodes that do not own it are removed, or will be by their loop. */
  readonly isTidy: boolean;
  /** It is known how its start on the target ended. */
  readonly isStarted: boolean;
}

export const MOVE_ACTIONS = [
  "describe",
  "chooseTarget",
  "sendEarly",
  "hold",
  "handOver",
  "stop",
  "copy",
  "commit",
  "changeOwner",
  "tidyUp",
  "awaitStart",
] as const;
export type MoveAction = (typeof MOVE_ACTIONS)[number];

export type MoveRefusal = "deleted" | "moving" | "ended" | "paused";

export type NextOfMove =
  | { readonly kind: "act"; readonly action: MoveAction; readonly step: MoveStep }
  | { readonly kind: "refuse"; readonly refusal: MoveRefusal }
  | { readonly kind: "done" };

interface Rule {
  readonly row: RowState;
  readonly when: string;
  readonly test?: (facts: MoveFacts) => boolean;
  readonly next: NextOfMove;
}

const act = (action: MoveAction, step: MoveStep): NextOfMove => ({ kind: "act", action, step });
const refuse = (refusal: MoveRefusal): NextOfMove => ({ kind: "refuse", refusal });

/**
 * First match wins.
 *
 *     row      further                                       → next            step
 *     deleted                                                → refuse: deleted
 *     moved    copies may be left                            → tidyUp          change
 *     moved    to run, and its start has no result yet       → awaitStart      start
 *     moved                                                  → done
 *     free     was held                                      → refuse: ended
 *     taken    was held                                      → refuse: ended
 *     taken                                                  → refuse: moving
 *     free     unknown what its node has                     → describe        hold
 *     free     no target for it as it is                     → chooseTarget    hold
 *     free     runs, and is to run there; not yet tried      → sendEarly       hold
 *     free                                                   → hold            hold
 *     held     is paused on the target                       → changeOwner     stop
 *     held     is a machine of the target                    → changeOwner     change
 *     held     the target has every file                     → commit          change
 *     held     nothing of it runs                            → copy            copy
 *     held     the target has points, its run is reported    → handOver        stop
 *     held     is to be suspended, and cannot be             → refuse: paused
 *     held                                                   → stop            stop
 */
export const MOVE_RULES: readonly Rule[] = [
  { row: "deleted", when: "it was deleted", next: refuse("deleted") },
  { row: "moved", when: "copies may be left", test: ({ isTidy }) => !isTidy, next: act("tidyUp", "change") },
  {
    row: "moved",
    when: "it is to run there",
    test: ({ isActive, isStarted }) => isActive && !isStarted,
    next: act("awaitStart", "start"),
  },
  { row: "moved", when: "it is where it is to be", next: { kind: "done" } },
  {
    row: "free",
    when: "this move was ended by another server",
    test: ({ wasHeld }) => wasHeld,
    next: refuse("ended"),
  },
  {
    row: "taken",
    when: "this move was ended by another server",
    test: ({ wasHeld }) => wasHeld,
    next: refuse("ended"),
  },
  { row: "taken", when: "another operation moves it", next: refuse("moving") },
  {
    row: "free",
    when: "it is unknown what its node has",
    test: ({ isDescribed }) => !isDescribed,
    next: act("describe", "hold"),
  },
  {
    row: "free",
    when: "no node is chosen for it as it is now",
    test: ({ effect }) => effect === null,
    next: act("chooseTarget", "hold"),
  },
  {
    row: "free",
    when: "its files can be sent while it runs",
    test: ({ isActive, canSendEarly, isEarlyTried, effect }) =>
      isActive && canSendEarly && !isEarlyTried && (effect === "migrate" || effect === "restart"),
    next: act("sendEarly", "hold"),
  },
  { row: "free", when: "a node is chosen for it", next: act("hold", "hold") },
  {
    row: "held",
    when: "it is paused on the target",
    test: ({ arrival }) => arrival === "paused",
    next: act("changeOwner", "stop"),
  },
  {
    row: "held",
    when: "it is a machine of the target",
    test: ({ arrival }) => arrival === "machine",
    next: act("changeOwner", "change"),
  },
  {
    row: "held",
    when: "the target has every file",
    test: ({ arrival }) => arrival === "files",
    next: act("commit", "change"),
  },
  { row: "held", when: "nothing of it runs", test: ({ isSettled }) => isSettled, next: act("copy", "copy") },
  {
    row: "held",
    when: "the target has all but what has changed since a point",
    test: ({ keepsMemory, hasPoints, isRunReported }) => keepsMemory && hasPoints && isRunReported,
    next: act("handOver", "stop"),
  },
  {
    row: "held",
    when: "its memory can be neither handed over nor saved",
    test: ({ keepsMemory, isSuspendRefused }) => keepsMemory && isSuspendRefused,
    next: refuse("paused"),
  },
  { row: "held", when: "something of it may run", next: act("stop", "stop") },
];

export function planMove(facts: MoveFacts): NextOfMove {
  const rule = MOVE_RULES.find(({ row, test }) => row === facts.row && (test === undefined || test(facts)));
  // The table covers every row state; plan.test.ts checks them all.
  if (rule === undefined) throw new Error(`no rule for ${JSON.stringify(facts)}`);
  return rule.next;
}

const ORDER = Object.keys(MOVE_STEPS) as readonly MoveStep[];

/** Whether a step comes after another one. */
export const isAfter = (step: MoveStep, other: MoveStep): boolean => ORDER.indexOf(step) > ORDER.indexOf(other);
