/**
 * Uses no guest whose kernel has mismeasured its timer.
 *
 * An emulated guest's kernel measures its timer against the processor's clock for 0.1 s while it boots
 * (guest/timer.c). On a busy host the rate that it finds was between half and three times the right one; with
 * less than a thousandth the kernel uses no timer: such a guest runs commands, but what sleeps in it never
 * wakes up, such as a process that writes much to its disk.
 *
 * Always: a guest without a timer is never used. A wrong rate makes what sleeps for a few milliseconds late,
 * or wakes the processor too often, so a better one is worth another boot, above all for a template, which
 * many machines start from.
 */
import type { Log } from "@flotilla/base/log";
import type { GuestHello } from "../../guest/guest.ts";

/**
 * How far the rate may be from the right one, relative to it, in the attempts to boot one after the other.
 */
export type Tolerances = readonly [number, ...number[]];
export const TEMPLATE_TOLERANCES: Tolerances = [0.1, 0.2, 0.5, Number.POSITIVE_INFINITY];
/** Someone waits for a machine. */
export const MACHINE_TOLERANCES: Tolerances = [0.5, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];

/** The guest that has booted is not to be used; another one may be. */
export class GuestTimerError extends Error {}

/** Throws a GuestTimerError. `rightKhz` null: any rate is right. */
export function assertTimer(
  { timerKhz }: Pick<GuestHello, "timerKhz">,
  { rightKhz, tolerance }: { readonly rightKhz: number | null; readonly tolerance: number },
): void {
  if (timerKhz === null) return;
  if (timerKhz === 0)
    throw new GuestTimerError(
      "the guest's kernel found no timer, because the host was too busy while it booted; try again",
    );
  if (rightKhz === null || Math.abs(timerKhz / rightKhz - 1) <= tolerance) return;
  throw new GuestTimerError(`the guest's kernel measured its timer at ${timerKhz} kHz instead of ${rightKhz}`);
}

/**
 * Resolves with what the first attempt resolves with whose guest has a timer within its tolerance. Rejects as
 * the last attempt did; an attempt that fails for another reason is the last.
 */
export async function withGoodTimer<T>(
  attempt: (tolerance: number) => Promise<T>,
  { tolerances, log }: { readonly tolerances: Tolerances; readonly log: Log },
): Promise<T> {
  const [tolerance, next, ...more] = tolerances;
  try {
    return await attempt(tolerance);
  } catch (error) {
    if (next === undefined || !(error instanceof GuestTimerError)) throw error;
    log.warn({ reason: error.message }, "a guest boots again, because its kernel mismeasured its timer");
  }
  return withGoodTimer(attempt, { tolerances: [next, ...more], log });
}
