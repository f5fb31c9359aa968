/**
 * Instants in rows are epoch milliseconds. Pure.
 *
 * A statement reads one as `ms(column)`, and writes one with `instantOf`.
 */

/**
 * An instant in a row that is further ahead was written by a clock that was ahead and has been set back:
 * nothing is postponed for longer than an hour, and clocks of servers differ by less than another one.
 */
export const AHEAD_MS_MAX = 2 * 60 * 60_000;

/** The end of the year 9999. PostgreSQL reads no later year in this form. */
const LATEST_MS = 253_402_300_799_999;

/**
 * Epoch milliseconds as a parameter for timestamptz. A later instant, which a node may report, becomes
 * LATEST_MS.
 */
export function instantOf(ms: number): string;
export function instantOf(ms: number | null | undefined): string | null;
export function instantOf(ms: number | null | undefined): string | null {
  return ms === null || ms === undefined ? null : new Date(Math.min(ms, LATEST_MS)).toISOString();
}
