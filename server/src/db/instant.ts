/**
 * Instants in rows are epoch milliseconds. Pure.
 *
 * A statement reads one as `floor(extract(epoch FROM column) * 1000)::bigint`, and writes one with `instantOf`.
 */

/** Epoch milliseconds as a parameter for timestamptz. */
export function instantOf(ms: number): string;
export function instantOf(ms: number | null | undefined): string | null;
export function instantOf(ms: number | null | undefined): string | null {
  return ms === null || ms === undefined ? null : new Date(ms).toISOString();
}
