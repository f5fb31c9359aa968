/**
 * How the server stops: the signals that request it, and the steps that undo its start.
 *
 * Always: signals that arrive within a second are one, because npm forwards what the terminal has sent to the
 * whole process group. A later signal hurries the stop: then only the database's step is still awaited.
 */
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { STOP_SIGNALS } from "@flotilla/base/stop-signals";

export interface StopOptions {
  /**
   * How long requests are still accepted first, in milliseconds, while the server is not ready. Not set: not
   * at all.
   */
  readonly delayMs?: number;
  /** How long requests may finish, in milliseconds. */
  readonly deadlineMs?: number;
  /** Aborted: nothing is awaited any more except the database, which stops immediately. */
  readonly hurry?: AbortSignal;
}

type Step = (options: StopOptions) => Promise<void> | void;

const SAME_SIGNAL_MS = 1_000;

/** The steps that undo the start, in the order of the start. */
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

  /** A step that is not awaited in a hurry. */
  push(step: Step): void {
    this.#steps.push((options) => orHurry(step(options), options.hurry));
  }

  /** A step that is always awaited. */
  pushAlways(step: Step): void {
    this.#steps.push(step);
  }

  /** Runs the last step first; a failed step is logged. */
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

/** Resolves with the work, or when the stop is hurried. */
async function orHurry(work: Promise<void> | void, hurry: AbortSignal | undefined): Promise<void> {
  if (hurry === undefined) return work;
  const late = Promise.withResolvers<void>();
  hurry.addEventListener("abort", () => late.resolve(), { once: true });
  if (hurry.aborted) late.resolve();
  await Promise.race([work, late.promise]);
}

/** `ask` is aborted by the first signal or by the end of `flotilla up`, `hurry` by a later signal. */
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
  for (const name of STOP_SIGNALS) process.on(name, onSignal);
  // Under `flotilla up`, whose end stops this process. It never hurries: a program that was asked to stop
  // continues.
  process.on("disconnect", () => {
    if (!ask.signal.aborted) onSignal();
  });
  return { ask: ask.signal, hurry: hurry.signal };
}
