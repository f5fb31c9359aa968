/**
 * Node's requests and responses as those of the web, which the protocol's library takes.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** Its signal is aborted when the caller disconnects before it has the whole answer. */
export function requestOf(message: IncomingMessage, response: ServerResponse): Request {
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) gone.abort(new Error("the caller has disconnected"));
  });
  const headers = new Headers();
  for (const [name, values] of Object.entries(message.headersDistinct))
    for (const value of values ?? []) headers.append(name, value);
  const { method = "GET", url = "/" } = message;
  const hasBody = method !== "GET" && method !== "HEAD";
  // The address only has a path that counts; the Host header is checked as it came.
  return new Request(new URL(url, "http://localhost"), {
    method,
    headers,
    signal: gone.signal,
    ...(hasBody ? { body: Readable.toWeb(message), duplex: "half" } : {}),
  });
}

/** Rejects when the caller disconnects. */
export async function sendAnswer(response: ServerResponse, answer: Response): Promise<void> {
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  if (answer.body === null) {
    response.end();
    return;
  }
  // The caller of a stream waits for its beginning.
  response.flushHeaders();
  await pipeline(Readable.fromWeb(answer.body), response);
}
