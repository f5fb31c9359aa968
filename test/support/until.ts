/**
 * Waiting in tests: for a condition, never for time to pass.
 *
 * Always:
 * - A condition is checked until it holds, and the error at the deadline says what was expected and what was
 *   there instead.
 * - A wait of some length costs little: the longer it has taken, the rarer the checks.
 * - Deadlines in tests are written for a host without other load; a busy host multiplies them.
 */
import { loadAdjustedMs } from "../../node/src/host/load-adjusted-timeout.ts";

export interface UntilOptions {
  /** As text, for the error. */
  readonly what?: string;
  /** Milliseconds, on a host without other load. */
  readonly deadlineMs?: number;
  /** Interval, for what lasts only a moment. Default: an eighth of the time so far, within EVERY_MS. */
  readonly everyMs?: number;
}

const DEADLINE_MS = 30_000;
const EVERY_MS = { min: 10, max: 250 } as const;
/** The load average is one of the last minute: load that has just begun does not show in it. */
const MARGIN = 2;

/**
 * The first result that is neither undefined, null nor false. A thrown error counts as no result, and is
 * shown.
 */
export async function until<T>(
  ask: () => Promise<T | undefined | null | false> | T | undefined | null | false,
  { what = "the condition", deadlineMs = DEADLINE_MS, everyMs }: UntilOptions = {},
): Promise<T> {
  const limitMs = onThisHost(deadlineMs);
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
    const waitedMs = performance.now() - startedAt;
    if (waitedMs > limitMs) {
      const seen = last instanceof Error ? last.message : JSON.stringify(last);
      throw new Error(`waited ${limitMs} ms for ${what}; last seen: ${seen}`);
    }
    await pause(everyMs ?? Math.min(EVERY_MS.max, Math.max(EVERY_MS.min, waitedMs / 8)));
  }
}

/** The limit for something that takes `ms` at most on a host without other load: at least twice that. */
export function onThisHost(ms: number): number {
  return loadAdjustedMs(ms * MARGIN);
}

/** The only pause that tests may take; `until` uses it, random kills do, and readers that are not quick. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Milliseconds that never go back. */
export function monotonic(): number {
  return performance.now();
}
