/**
 * What follows a hook of a machine: the moment and how the hook ended → what happens, and why.
 *
 * Pure. Always: only the failure of a `fork` hook ends a machine, and that of a clone that has not been
 * served yet.
 */
import type { HookMoment } from "@flotilla/contract/hooks";

/**
 * How a hook ended. `done`: with exit code 0. `failed`: with another one. `late`: it was killed when its time
 * was over. `notRun`: the guest did not run it, or not to its end. `cut`: it was killed because the action
 * ended of which it was a part.
 */
export const HOOK_OUTCOMES = ["done", "failed", "late", "notRun", "cut"] as const;
export type HookOutcome = (typeof HOOK_OUTCOMES)[number];

/** `continue`: nothing more. `tell`: the machine gets an event, and continues. `end`: it is ended. */
export interface Consequence {
  readonly then: "continue" | "tell" | "end";
  readonly why: string;
}

const DONE = { then: "continue", why: "it did its work" } as const;
const CUT = { then: "continue", why: "what has interrupted it decides what happens next" } as const;

const clone = (why: string) => ({ then: "end", why }) as const;
const suspends = { then: "tell", why: "an idle machine must not run for ever because of a hook" } as const;
const resumed = { then: "tell", why: "its memory is in use, and would be lost with it" } as const;
const stops = { then: "tell", why: "its owner wants it stopped, whatever its programs do" } as const;

export const CONSEQUENCES = {
  fork: {
    done: DONE,
    failed: clone("it may still do what only its source may"),
    late: clone("it may still do what only its source may, and a hook that was killed has done half of its work"),
    notRun: clone("a guest that does not run commands cannot confirm anything"),
    cut: clone("nothing has confirmed that it may run"),
  },
  resume: { done: DONE, failed: resumed, late: resumed, notRun: resumed, cut: CUT },
  suspend: { done: DONE, failed: suspends, late: suspends, notRun: suspends, cut: CUT },
  stop: { done: DONE, failed: stops, late: stops, notRun: stops, cut: CUT },
} as const satisfies Readonly<Record<HookMoment, Readonly<Record<HookOutcome, Consequence>>>>;
