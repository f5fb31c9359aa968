/**
 * One more attempt for a boot that hangs.
 *
 * Rarely a guest's kernel stops in the middle of its boot and never goes on; a boot that is begun again does not.
 */
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";

/** The time of a first attempt where a boot takes some seconds. */
export const FIRST_BOOT_MS = 30_000;

/**
 * What `attempt` gives. It is told to give up after `firstMs` and made once more, without a time of its own. Rejects as the
 * last attempt did; an attempt that fails by itself, or when `signal` is aborted, is the last.
 */
export async function withSecondAttempt<T>(
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
  return attempt(signal);
}
