/**
 * `Expect: 100-continue`: a caller that asks before it sends its body gets 100 when the body is first read.
 *
 * Always: a request that is refused before that gets no 100, and its connection ends: whether the body still
 * comes is unknown.
 */
import { IncomingMessage, type ServerResponse } from "node:http";

/** Requests whose callers wait for 100. */
const waiting = new WeakSet<IncomingMessage>();

/** Whether the caller sends nothing of its body until it is read. */
export const awaitsContinue = (message: IncomingMessage): boolean => waiting.has(message);

/** Sends 100 when anything reads the body: a listener, an iterator or a pipe. */
export function continueWhenRead(message: IncomingMessage, response: ServerResponse): void {
  const keepAlive = response.shouldKeepAlive;
  waiting.add(message);
  response.shouldKeepAlive = false;
  message._read = function (this: IncomingMessage, size: number): void {
    if (waiting.delete(this) && !response.headersSent) {
      response.shouldKeepAlive = keepAlive;
      response.writeContinue();
    }
    IncomingMessage.prototype._read.call(this, size);
  };
}
