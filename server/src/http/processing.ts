/**
 * Tells callers who asked for it, while their answer is not known yet, that it is on its way: an interim answer
 * 102 (RFC 2518) every few seconds, for those who send `Prefer: processing`.
 *
 * Some clients and proxies give up on an answer that has not begun: Node's fetch after 300 s. The status cannot be sent
 * before it is known, and no interim answer can be sent unasked: Python's http.client takes 102 and 103 for the final
 * status, and Node's fetch ends the connection on a 100 that it did not wait for.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "@flotilla/base/clock";

/** Shorter than the 30 s that clients in daily use wait, and the 60 s of most proxies. */
export const PROCESSING_MS = 15_000;

export const wantsProcessing = ({ headers }: IncomingMessage): boolean =>
  headers["prefer"] !== undefined && /(^|[,;\s])processing($|[,;\s])/i.test(String(headers["prefer"]));

/** Until the signal is aborted or the answer begins. */
export async function sayProcessing(
  response: ServerResponse,
  { clock, everyMs, signal }: { readonly clock: Clock; readonly everyMs: number; readonly signal: AbortSignal },
): Promise<void> {
  for (;;) {
    await clock.sleep(everyMs, signal);
    if (signal.aborted || response.headersSent || response.destroyed) return;
    response.writeProcessing();
  }
}
