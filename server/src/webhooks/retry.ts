/**
 * When a delivery is attempted again, and when the server stops trying. Pure.
 *
 * Two bounds, because receivers fail in two ways. One that rejects a single event delays only the events of
 * the same machine, until ATTEMPTS_MAX. One that answers nothing at all is probed with one request at a time
 * (`isDown`), and disabled when nothing has succeeded for DISABLE_AFTER_MS, in which it was attempted again
 * and again.
 */

/** Delay after the first failure; doubles with each further one. */
export const RETRY_MS = 1_000;
const RETRY_MS_MAX = 60 * 60_000;
/** About three days: twelve attempts in the first hour and then one an hour. */
export const ATTEMPTS_MAX = 84;
export const DISABLE_AFTER_MS = 3 * 24 * 60 * 60_000;
/**
 * In that time about a hundred attempts fail. Fewer mean that none was made for long: the tenant was
 * suspended, or no server ran.
 */
const FAILURES_UNTIL_DISABLED = 60;
/**
 * How many failures in a row are not chance: one in three fails a healthy but faulty receiver once in 6561
 * times.
 */
const FAILURES_UNTIL_DOWN = 8;
const GONE = 410;

/** The receiver seems to be unreachable: it is probed, and its failures delay all of its deliveries. */
export const isDown = (failures: number): boolean => failures >= FAILURES_UNTIL_DOWN;

/**
 * Milliseconds until the attempt after `attempts` failed ones. `random` is in 0 to 1: half of the delay is
 * jitter.
 */
export function retryDelayMs(attempts: number, { random, baseMs }: { random: number; baseMs: number }): number {
  const full = Math.min(RETRY_MS_MAX, baseMs * 2 ** Math.min(attempts - 1, 30));
  return Math.round(full * (1 - random / 2));
}

/** Milliseconds until a receiver that is down is probed again; 0: it is not down. */
export const probeDelayMs = (failures: number, jitter: { random: number; baseMs: number }): number =>
  isDown(failures) ? retryDelayMs(failures - FAILURES_UNTIL_DOWN + 1, jitter) : 0;

export interface Failing {
  /** Epoch milliseconds; null: the last attempt succeeded. */
  readonly failingSince: number | null;
  /** In a row. */
  readonly failures: number;
  /** The HTTP status of the last attempt; null: no answer. */
  readonly lastStatus: number | null;
}

/** Why a webhook is disabled now; null: it is not. */
export function disableReason({ failingSince, failures, lastStatus }: Failing, now: number): string | null {
  if (lastStatus === GONE) return "its receiver answered 410 Gone";
  if (failingSince === null || now - failingSince < DISABLE_AFTER_MS || failures < FAILURES_UNTIL_DISABLED) return null;
  return `no delivery has succeeded since ${new Date(failingSince).toISOString()}`;
}
