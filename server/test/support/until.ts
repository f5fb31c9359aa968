/**
 * Waits for a condition by polling: the tests' only way to wait.
 */
import { setTimeout as wait } from "node:timers/promises";

const PAUSE_MS = 10;

/**
 * The first result that is neither false nor undefined. Throws, with the last error if there was one, at the
 * deadline.
 */
export async function until<T>(
  condition: () => Promise<T | false | undefined> | T | false | undefined,
  { deadlineMs = 10_000, what = "the condition" }: { readonly deadlineMs?: number; readonly what?: string } = {},
): Promise<T> {
  const deadline = performance.now() + deadlineMs;
  let lastError: unknown;
  do {
    try {
      const value = await condition();
      if (value !== false && value !== undefined) return value;
    } catch (error) {
      lastError = error;
    }
    await wait(PAUSE_MS);
  } while (performance.now() < deadline);
  throw new Error(`${what} did not become true within ${deadlineMs} ms`, { cause: lastError });
}
