/**
 * The answer to a request for a log: a stream of events, or a file to keep. Pure.
 */
import type { Readable } from "node:stream";
import type { LogPart } from "./part.ts";

export interface LogAnswer {
  readonly status: 200;
  readonly body: Readable;
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** `name`: what has the log; it is part of the name of a file. */
export function logAnswer(name: string, { format }: LogPart, body: Readable): LogAnswer {
  if (format !== "plain") return { status: 200, body };
  const file = `${name.replace(/[^A-Za-z0-9_.-]/g, "_")}.log`;
  return {
    status: 200,
    body,
    contentType: "text/plain; charset=utf-8",
    headers: { "content-disposition": `attachment; filename="${file}"`, "x-content-type-options": "nosniff" },
  };
}
