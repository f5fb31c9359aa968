/**
 * Reads the body of a request: bounded, as bytes, then as JSON.
 *
 * Always: at most the endpoint's limit is held in memory; what is longer is refused with 413. A moderately longer
 * body is read to its end and thrown away first, because a client that is still sending would otherwise see a broken
 * connection in place of the answer.
 */
import type { IncomingMessage } from "node:http";
import { Refusal } from "@flotilla/contract/errors";

const DRAIN_BYTES_MAX = 32 * 1024 * 1024;

/** Thrown when the caller went away before its body was complete: there is nobody to answer. */
export class CallerGone extends Error {
  constructor() {
    super("the caller went away while sending");
    this.name = "CallerGone";
  }
}

export const NOTHING = Buffer.alloc(0);

/** Whether a body comes, however long: what says neither its length nor how it is sent has none. */
export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";

/** By events, not as an async iterator, which takes several times as long for a body that is one chunk. */
export function readBody(incoming: IncomingMessage, maxBytes: number): Promise<Buffer> {
  if (incoming.destroyed) return Promise.reject(new CallerGone());
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const tooLarge = (headers: Readonly<Record<string, string>>): Refusal => {
      const text = `the request body is larger than the ${maxBytes} bytes this endpoint accepts`;
      return new Refusal("body_too_large", text, headers);
    };
    incoming.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= maxBytes) chunks.push(chunk);
      if (size <= maxBytes + DRAIN_BYTES_MAX) return;
      incoming.pause();
      reject(tooLarge({ connection: "close" }));
    });
    incoming.on("end", () => {
      if (size > maxBytes) reject(tooLarge({}));
      else resolve(chunks.length === 1 ? (chunks[0] ?? NOTHING) : Buffer.concat(chunks));
    });
    incoming.on("error", () => reject(new CallerGone()));
    incoming.on("close", () => {
      if (!incoming.readableEnded) reject(new CallerGone());
    });
  });
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/** The value, or undefined for no body at all. Refuses what is not JSON with 400. */
export function parseJson(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  let text: string;
  let value: unknown;
  try {
    text = decoder.decode(bytes);
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof SyntaxError ? error.message : "it is not UTF-8";
    throw new Refusal("invalid_json", `Failed to parse the request body as JSON: ${reason}`);
  }
  // Only an escape can bring in what the database cannot hold, so most bodies are not walked.
  if (/\\u(0000|[dD][89a-fA-F])/.test(text)) refuseUnstorable(value);
  return value;
}

/** A lone half of a surrogate pair anywhere, or a NUL in a name, is text that PostgreSQL refuses. */
function refuseUnstorable(root: unknown): void {
  const pending: unknown[] = [root];
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    if (typeof value === "string" && !value.isWellFormed()) refuseText("a string with half a surrogate pair");
    if (typeof value !== "object" || value === null) continue;
    for (const [name, item] of Object.entries(value)) {
      if (name.includes("\0")) refuseText("a field name with a NUL character");
      if (!name.isWellFormed()) refuseText("a field name with half a surrogate pair");
      pending.push(item);
    }
  }
}

function refuseText(what: string): never {
  throw new Refusal("invalid_body", `Failed to deserialize the JSON body into the target type: it contains ${what}`);
}
