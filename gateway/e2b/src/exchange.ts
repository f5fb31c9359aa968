/**
 * Reading requests and writing answers of the gateway itself.
 *
 * Always: a body of JSON has at most JSON_BYTES_MAX and arrives within BODY_MS; what the client sent and is
 * not read is dropped with its connection.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "@flotilla/base/clock";
import { type Fields, fieldsOf } from "./fields.ts";
import { Refused } from "./refused.ts";

const JSON_BYTES_MAX = 1024 * 1024;
const BODY_MS = 30_000;

export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly clock: Clock;
}

/** The body as an object; without a body an empty one. Throws a Refused. */
export async function bodyOf({ request, clock }: Exchange): Promise<Fields> {
  const chunks: Buffer[] = [];
  let size = 0;
  const timer = clock.timer(BODY_MS, () => request.destroy());
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      size += chunk.byteLength;
      if (size > JSON_BYTES_MAX) throw new Refused(413, `the body has more than ${JSON_BYTES_MAX} bytes`);
      chunks.push(chunk);
    }
  } finally {
    timer.cancel();
  }
  const text = Buffer.concat(chunks).toString("utf8");
  if (text === "") return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refused(400, "the body is not JSON");
  }
  return fieldsOf(value, "the body");
}

/** An answer of the gateway; does nothing when the client has gone or has been answered. */
export function answerJson(
  { request, response }: Pick<Exchange, "request" | "response">,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const isEmpty = status === 204;
  const text = isEmpty ? "" : JSON.stringify(body);
  const all: Record<string, string> = { ...headers };
  if (!isEmpty)
    Object.assign(all, { "content-type": "application/json", "content-length": String(Buffer.byteLength(text)) });
  // The rest of the body would have to be read before another request.
  if (!request.complete) all["connection"] = "close";
  response.writeHead(status, all);
  response.end(text);
}
