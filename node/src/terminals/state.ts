/**
 * What becomes of a kept terminal with each event: the table of docs/terminals.md.
 *
 * Pure. Always: a terminal is kept exactly as long as its client may still ask for something of it.
 */

/** `ended` states: the program has ended, and its client may not know yet. */
export type TerminalState = "attached" | "detached" | "endedAttached" | "endedDetached" | "gone";

export const TERMINAL_EVENTS = ["attach", "lost", "done", "exit", "minuteOver", "guestLost"] as const;
/**
 * `attach`: a client asks for it. `lost`: the connection of its client broke. `done`: its client needs it no
 * more. `exit`: the program has ended. `guestLost`: the channel to the guest, or the guest.
 */
export type TerminalEvent = (typeof TERMINAL_EVENTS)[number];

/**
 * `replace`: the client before, if there is one, learns that another has taken over. `wait`: the minute
 * begins; any other act ends it. `kill`: the program with its descendants. `forget`: the guest need not keep
 * it, and readers end.
 */
export type TerminalAct = "replace" | "wait" | "kill" | "forget";

type Step = readonly [TerminalState, ...TerminalAct[]];

const GONE: Record<TerminalEvent, Step> = {
  ...{ attach: ["gone"], lost: ["gone"], done: ["gone"], exit: ["gone"], minuteOver: ["gone"], guestLost: ["gone"] },
};

export const TERMINAL_TABLE: Readonly<Record<TerminalState, Readonly<Record<TerminalEvent, Step>>>> = {
  attached: {
    attach: ["attached", "replace"],
    lost: ["detached", "wait"],
    done: ["gone", "kill", "forget"],
    exit: ["endedAttached"],
    minuteOver: ["attached"],
    guestLost: ["gone", "forget"],
  },
  detached: {
    attach: ["attached", "replace"],
    lost: ["detached"],
    done: ["gone", "kill", "forget"],
    exit: ["endedDetached"],
    minuteOver: ["gone", "kill", "forget"],
    guestLost: ["gone", "forget"],
  },
  endedAttached: {
    attach: ["endedAttached", "replace"],
    lost: ["endedDetached", "wait"],
    done: ["gone", "forget"],
    exit: ["endedAttached"],
    minuteOver: ["endedAttached"],
    guestLost: ["endedAttached"],
  },
  endedDetached: {
    attach: ["endedAttached", "replace"],
    lost: ["endedDetached"],
    done: ["gone", "forget"],
    exit: ["endedDetached"],
    minuteOver: ["gone", "forget"],
    guestLost: ["endedDetached"],
  },
  gone: GONE,
};

/** Whether it waits for its client. */
export const isDetached = (state: TerminalState): boolean => state === "detached" || state === "endedDetached";
