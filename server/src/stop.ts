/**
 * How the server stops: the signals that ask for it, and the steps that undo its start.
 *
 * Always: signals that arrive within a second are one, because npm passes on what the terminal has sent to everyone. A
 * later signal makes the stop hurry; then only the step of the database is still waited for.
 */
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";

export interface StopOptions {
  /** How long requests may finish, in milliseconds. */
  readonly deadlineMs?: number;
  /** Aborted: nothing is waited for any more except the database, which stops at once. */
  readonly hurry?: AbortSignal;
}

type Step = (options: StopOptions) => Promise<void> | void;

const SAME_SIGNAL_MS = 1_000;

/** What must be undone, in the order in which it was done. */
export class StopSteps {
  readonly #log: Log;
  readonly #steps: Step[] = [];
  #hasBegun = false;

  constructor(log: Log) {
    this.#log = log;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** A step that is not waited for in a hurry. */
  push(step: Step): void {
    this.#steps.push((options) => orHurry(step(options), options.hurry));
  }

  /** A step that is waited for also in a hurry. */
  pushAlways(step: Step): void {
    this.#steps.push(step);
  }

  /** The last step first; one that fails is logged. */
  async run(options: StopOptions = {}): Promise<void> {
    this.#hasBegun = true;
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await step(options);
      } catch (error) {
        this.#log.error({ error }, "a part of the server did not stop cleanly");
      }
    }
  }
}

/** Resolves with the work, or when there is no more time for it. */
async function orHurry(work: Promise<void> | void, hurry: AbortSignal | undefined): Promise<void> {
  if (hurry === undefined) return work;
  const late = Promise.withResolvers<void>();
  hurry.addEventListener("abort", () => late.resolve(), { once: true });
  if (hurry.aborted) late.resolve();
  await Promise.race([work, late.promise]);
}

/** `ask` is aborted by the first signal or by the end of `flotilla up`, `hurry` by a signal after that. */
export function stopSignals(): { readonly ask: AbortSignal; readonly hurry: AbortSignal } {
  const ask = new AbortController();
  const hurry = new AbortController();
  let askedAt = 0;
  const onSignal = () => {
    const now = systemClock.monotonic();
    if (ask.signal.aborted) {
      if (now - askedAt >= SAME_SIGNAL_MS) hurry.abort();
      return;
    }
    askedAt = now;
    ask.abort(new Error("asked to stop"));
  };
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(name, onSignal);
  // Under `flotilla up`, whose end is the end of this. It never insists: a program that was asked to stop goes on.
  process.on("disconnect", () => {
    if (!ask.signal.aborted) onSignal();
  });
  return { ask: ask.signal, hurry: hurry.signal };
}
