/**
 * Answers before the final one that a machine gives, passed on to its caller: 102, and 103 with links.
 *
 * Always: none reaches a caller of HTTP/1.0, none follows the head of the final answer, and none is held for
 * a caller that does not read. What Node refuses to send is dropped: they are hints.
 */
import type { ServerResponse } from "node:http";

const HELD_BYTES_MAX = 64 * 1024;

/** `head`: names and values, in turn. */
export function sendInterim(response: ServerResponse, status: number, head: readonly string[]): void {
  const { headersSent, destroyed, writableLength, req } = response;
  if (req.httpVersionMinor === 0 || headersSent || destroyed || writableLength > HELD_BYTES_MAX) return;
  if (status === 102) response.writeProcessing();
  if (status === 103) sendHints(response, head);
}

function sendHints(response: ServerResponse, head: readonly string[]): void {
  const hints = new Map<string, string[]>();
  for (let at = 0; at + 1 < head.length; at += 2) {
    const name = (head[at] ?? "").toLowerCase();
    hints.set(name, [...(hints.get(name) ?? []), head[at + 1] ?? ""]);
  }
  const { link = [], ...others } = Object.fromEntries(hints);
  const joined = Object.fromEntries(Object.entries(others).map(([name, values]) => [name, values.join(", ")]));
  try {
    response.writeEarlyHints({ link, ...joined });
  } catch {
    // A link that is not of the form that browsers understand.
  }
}
