/**
 * Ends an answer whose reader has stopped reading.
 *
 * Always: only answers that are not sent at once are watched. A limit for the whole server would cost one
 * more timer per request, and would keep Node from closing idle connections.
 */
import type { ServerResponse } from "node:http";

/**
 * A reader that takes nothing for this long, although more is buffered for it, counts as gone. Long, because
 * people read in a pager and pause terminals. What is held meanwhile is bounded: of a stream little, in an
 * open request; of whole answers by unread-answers.ts.
 */
const STALL_MS = 60 * 60_000;

export function endWhenStalled(response: ServerResponse): void {
  // tidy-allow timer: the connection's own, which ends with it
  response.setTimeout(STALL_MS, () => {
    if (response.socket?.writableNeedDrain) response.socket.destroy();
  });
  // The connection's next answer has its own limit. Prepended: Node's listener sets the idle limit.
  // tidy-allow timer: the same
  response.prependOnceListener("finish", () => void response.socket?.setTimeout(0));
}
