/**
 * A `fetch` without a response timeout: Node's own fails after 300 s without an answer, and a command in a machine or
 * the import of a large image may be silent for longer.
 *
 * Always: only the SDK uses it, so it supports only what the SDK needs: a method, headers, a body of text, bytes or a
 * stream, and a signal. It follows no redirect, because the API sends none.
 */
import { type IncomingMessage, request as plainRequest } from "node:http";
import { request as tlsRequest } from "node:https";
import { Readable } from "node:stream";

const KEEP_ALIVE_MS = 30_000;
const STATUSES_WITHOUT_BODY: readonly number[] = [204, 205, 304];

export function patientFetch(url: string, init: RequestInit): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  const signal = init.signal ?? undefined;
  const headers = Object.fromEntries(new Headers(init.headers));
  const make = url.startsWith("https:") ? tlsRequest : plainRequest;
  const request = make(url, { method: init.method ?? "GET", headers, ...(signal === undefined ? {} : { signal }) });
  // Detects a peer that vanished silently although nothing is being sent.
  request.setSocketKeepAlive(true, KEEP_ALIVE_MS);
  request.on("response", (message) => resolve(responseOf(message)));
  request.on("error", reject);
  const { body } = init;
  if (body instanceof ReadableStream) {
    const source = Readable.fromWeb(body);
    source.on("error", (error) => request.destroy(error));
    source.pipe(request);
  } else request.end(body ?? undefined);
  return promise;
}

function responseOf(message: IncomingMessage): Response {
  const status = message.statusCode ?? 0;
  const headers = new Headers();
  for (const [name, values] of Object.entries(message.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value);
  }
  if (STATUSES_WITHOUT_BODY.includes(status)) {
    message.resume();
    return new Response(null, { status, headers });
  }
  return new Response(Readable.toWeb(message), { status, headers });
}
