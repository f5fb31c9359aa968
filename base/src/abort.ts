/**
 * Cancelled work: deadlines as signals, and promises that end with a signal.
 *
 * Always: listeners added to a signal are removed when the work is over, so a signal that lives as long as
 * the program does not collect them.
 */
import type { Clock } from "./clock.ts";
import { errorOf } from "./errors.ts";

/** A signal that is aborted after `ms` or with `parent`; `dispose` frees the timer. */
export function deadlineSignal(
  clock: Clock,
  ms: number,
  parent?: AbortSignal,
): { readonly signal: AbortSignal; dispose(): void } {
  const controller = new AbortController();
  const abort = (): void => controller.abort(parent && reasonOf(parent));
  const timer = clock.timer(ms, () => controller.abort(new Error(`no answer within ${Math.round(ms / 1000)} s`)));
  if (parent?.aborted) abort();
  else parent?.addEventListener("abort", abort, { once: true });
  return {
    signal: controller.signal,
    dispose: () => {
      timer.cancel();
      parent?.removeEventListener("abort", abort);
    },
  };
}

/**
 * Resolves like `work`, unless the signal is aborted first: then it rejects with the signal's reason. `work`
 * continues, and its result is ignored.
 */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(reasonOf(signal));
    const over = (): void => signal.removeEventListener("abort", abort);
    work.finally(over).then(resolve, reject);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}

/** The reason of an aborted signal, as an Error. */
export const reasonOf = (signal: AbortSignal): Error => errorOf(signal.reason);
