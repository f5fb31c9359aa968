/**
 * Waiting in tests: for a condition, never for time to pass.
 *
 * Always: a condition is checked every few milliseconds until it holds, and the error at the deadline says what was
 * expected and what was there instead.
 */

export interface UntilOptions {
  /** As text, for the error. */
  readonly what: string;
  readonly deadlineMs?: number;
  readonly everyMs?: number;
}

const DEADLINE_MS = 10_000;
const EVERY_MS = 5;

/** The first result that is neither undefined, null nor false. A thrown error counts as no result, and is shown. */
export async function until<T>(
  ask: () => Promise<T | undefined | null | false> | T | undefined | null | false,
  { what, deadlineMs = DEADLINE_MS, everyMs = EVERY_MS }: UntilOptions,
): Promise<T> {
  const startedAt = performance.now();
  for (;;) {
    let last: unknown;
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== null && answer !== false) return answer;
      last = answer;
    } catch (error) {
      last = error;
    }
    if (performance.now() - startedAt > deadlineMs) {
      const seen = last instanceof Error ? last.message : JSON.stringify(last);
      throw new Error(`waited ${deadlineMs} ms for ${what}; last seen: ${seen}`);
    }
    await pause(everyMs);
  }
}

/** The only pause that tests may take; `until` uses it, and the random kills do between kills. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Milliseconds that never go back. */
export function monotonic(): number {
  return performance.now();
}
