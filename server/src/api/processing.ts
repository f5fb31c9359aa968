/**
 * Sends an interim answer 102 (RFC 2518) every few seconds to callers that send `Prefer: processing`, until
 * their answer begins.
 *
 * Some clients and proxies time out while an answer has not begun: Node's fetch after 300 s. The status
 * cannot be sent before it is known, and an interim answer only on request: Python's http.client takes 102
 * and 103 for the final status, and Node's fetch ends the connection on an unexpected 100.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "@flotilla/base/clock";

/** Shorter than the 30 s that existing clients wait, and the 60 s of most proxies. */
export const PROCESSING_MS = 15_000;

export const wantsProcessing = ({ headers }: IncomingMessage): boolean =>
  headers["prefer"] !== undefined && /(^|[,;\s])processing($|[,;\s])/i.test(String(headers["prefer"]));

/** Sends 102 until the signal is aborted or the answer begins. */
export async function sendProcessing(
  response: ServerResponse,
  { clock, everyMs, signal }: { readonly clock: Clock; readonly everyMs: number; readonly signal: AbortSignal },
): Promise<void> {
  for (;;) {
    await clock.sleep(everyMs, signal);
    if (signal.aborted || response.headersSent || response.destroyed) return;
    response.writeProcessing();
  }
}
