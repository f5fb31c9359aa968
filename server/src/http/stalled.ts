/**
 * Ends an answer whose reader takes nothing any more.
 *
 * Always: only answers that do not go out at once are watched. A limit for the whole server would be a timer more for
 * each request, and would keep Node from closing connections on which nothing is asked any more.
 */
import type { ServerResponse } from "node:http";

/** A reader that takes nothing for this long, though more waits for it, has gone. */
const STALL_MS = 60 * 60_000;

export function endWhenStalled(response: ServerResponse): void {
  // tidy-allow timer: the connection's own, which ends with it
  response.setTimeout(STALL_MS, () => {
    if (response.socket?.writableNeedDrain) response.socket.destroy();
  });
  // The connection's next answer is another's. First of all, because Node then sets how long it may stay idle.
  // tidy-allow timer: the same
  response.prependOnceListener("finish", () => void response.socket?.setTimeout(0));
}
