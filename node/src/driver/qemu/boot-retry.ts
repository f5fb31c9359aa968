/**
 * Retries a boot that hangs, once.
 *
 * Rarely, a guest's kernel hangs in the middle of its boot; a second boot does not.
 *
 * Always: each attempt has its own limit, so the last of several has as long as the first.
 */
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";

/** Time limit of the first attempt, when a boot takes a few seconds. */
export const FIRST_BOOT_MS = 30_000;
/** The same of any other attempt, on whatever host. */
export const ATTEMPT_MS = 120_000;

/**
 * Runs `attempt`, cancels it after `firstMs` and then runs it once more, for ATTEMPT_MS at most. Rejects
 * as the last attempt did; an attempt that fails by itself, or after `signal` was aborted, is the last.
 */
export async function retryBoot<T>(
  attempt: (signal: AbortSignal) => Promise<T>,
  { clock, signal, firstMs }: { readonly clock: Clock; readonly signal: AbortSignal; readonly firstMs: number },
): Promise<T> {
  const first = deadlineSignal(clock, firstMs, signal);
  try {
    return await attempt(first.signal);
  } catch (error) {
    if (!first.signal.aborted || signal.aborted) throw error;
  } finally {
    first.dispose();
  }
  const second = deadlineSignal(clock, ATTEMPT_MS, signal);
  try {
    return await attempt(second.signal);
  } finally {
    second.dispose();
  }
}
