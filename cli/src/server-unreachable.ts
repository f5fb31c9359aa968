/**
 * Asks a server again that does not answer for a moment, as while it restarts. For commands that wait or
 * follow: their first call is not repeated, so that a wrong address is reported at once.
 *
 * Always: each attempt ends after ASK_MS_MAX, since a connection that died unnoticed would give no answer for
 * minutes, although the server answers on a new one.
 */
import { FlotillaError } from "@flotilla/sdk";
import type { Call } from "./call.ts";

const ASK_AGAIN_MS = 500;
/** Long enough for a large page of events over a slow line. */
const ASK_MS_MAX = 30_000;
/** The longest restart of a server. */
const UNREACHABLE_MS_MAX = 30_000;
const UNREACHABLE_STATUSES: readonly number[] = [502, 503, 504];

/**
 * The first answer of `ask`. Throws what it throws for another reason, after UNREACHABLE_MS_MAX, and once
 * `signal` is aborted.
 */
export async function whileUnreachable<T>(
  { world }: Call,
  ask: (limit: { readonly timeoutMs: number }) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  let since: number | null = null;
  for (;;) {
    try {
      return await ask({ timeoutMs: ASK_MS_MAX });
    } catch (error) {
      since ??= world.clock.monotonic();
      if (!isUnreachable(error) || signal?.aborted === true || world.clock.monotonic() - since > UNREACHABLE_MS_MAX)
        throw error;
    }
    await world.clock.sleep(ASK_AGAIN_MS, signal);
  }
}

/** Whether nothing answered, or only that the server, or what is behind a proxy, does not now. */
const isUnreachable = (error: unknown): boolean =>
  error instanceof FlotillaError &&
  (error.code === "unreachable" || error.code === "timeout" || UNREACHABLE_STATUSES.includes(error.status));
