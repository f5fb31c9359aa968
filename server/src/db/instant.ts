/**
 * Epoch milliseconds as a parameter for timestamptz. Pure.
 */

export function instantOf(ms: number): string;
export function instantOf(ms: number | null | undefined): string | null;
export function instantOf(ms: number | null | undefined): string | null {
  return ms === null || ms === undefined ? null : new Date(ms).toISOString();
}
