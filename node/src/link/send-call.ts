/**
 * One request to a server, with a body that may be a stream.
 */
import type { ClientRequest, IncomingMessage, RequestOptions } from "node:http";
import type { Readable } from "node:stream";
import type { ServerCall } from "../images/own-registry.ts";

type Begin<Options> = (options: Options, onAnswer: (answer: IncomingMessage) => void) => ClientRequest;

/** Sends with the request function of a module. As CallServer. */
export async function sendCall<Options extends RequestOptions>(
  begin: Begin<Options>,
  options: Options,
  { method, path, headers, body, signal }: ServerCall,
): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const request = begin({ ...options, method, path, headers: { host: "localhost", ...headers }, signal }, resolve);
  request.on("error", reject).once("close", () => reject(new Error("the connection ended before an answer")));
  sendBody(request, body);
  return await promise;
}

function sendBody(request: ClientRequest, body: Buffer | Readable | undefined): void {
  if (body === undefined || Buffer.isBuffer(body)) {
    request.end(body);
    return;
  }
  body.once("error", (error) => request.destroy(error));
  request.once("close", () => body.destroy());
  // An answer that comes before the body's end is read; after it the connection cannot be used again.
  request.once("response", (answer: IncomingMessage) => {
    if (request.writableFinished) return;
    body.unpipe(request);
    body.destroy();
    answer.once("end", () => request.destroy());
  });
  body.pipe(request);
}
