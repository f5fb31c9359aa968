/**
 * Runs a request under its idempotency key: its fingerprint for idempotency.ts, and the digest of a streamed
 * body.
 *
 * Always: a streamed answer is passed through and not kept; a streamed body is passed on as it arrives, and
 * its digest is kept only if all of it was read.
 */
import { createHash, hkdfSync } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { pipeline, type Readable, Transform, type TransformCallback } from "node:stream";
import { ID_PREFIXES, type IdKind } from "@flotilla/contract/ids";
import { CallerGone } from "../http/body.ts";
import type { Outgoing } from "../http/answer.ts";
import { idempotently, type IdempotencyParts, type WireAnswer } from "./idempotency.ts";

export interface OnceOptions {
  readonly key: string;
  readonly keyId: string;
  readonly tenantId: string;
  /** The API key in plain. */
  readonly bearer: string;
  readonly message: IncomingMessage;
  readonly url: string;
  /** undefined: the body is streamed. */
  readonly bytes: Buffer | undefined;
  /** Answers refusals too. `body`: what the handler reads in place of the message. */
  readonly run: (seed: string, body: Readable) => Promise<Outgoing> | Outgoing;
}

/** Throws a Refusal when the key was used for something else, or its request still runs. */
export async function once(
  parts: IdempotencyParts,
  { message, url, bytes, run, ...rest }: OnceOptions,
): Promise<Outgoing> {
  let stream: Outgoing | undefined;
  const work = async (seed: string): Promise<WireAnswer> => {
    const digested = bytes === undefined ? new DigestedBody() : null;
    if (digested !== null) pipeline(message, digested, () => undefined);
    const outgoing = await run(seed, digested ?? message);
    const { status, headers, body } = outgoing;
    if (typeof body === "string") return { status, headers, body, digest: digested?.digest ?? null };
    stream = outgoing;
    return { status, headers, body: null };
  };
  const fingerprintOf = [message.method ?? "", url, bytes ?? "a streamed body"];
  const request = { ...rest, fingerprintOf, ...(bytes === undefined ? { readDigest: () => digestOf(message) } : {}) };
  const wire = await idempotently(parts, request, work);
  return stream ?? { ...wire, body: wire.body ?? "" };
}

/** The id of what the request makes of a kind: one for each request. Pure. */
export const idFromSeed = (seed: string, kind: IdKind): string =>
  `${ID_PREFIXES[kind]}-${createHash("sha256").update(`${kind} ${seed}`).digest("hex").slice(0, 32)}`;

/**
 * Secrets of what the request makes: from the API key in plain, which the server does not keep, so the seed
 * alone tells nothing of them. Other bytes at each call, and the same for the same calls. Pure.
 */
export function bytesFromSeed(seed: string, bearer: string): (size: number) => Buffer {
  let calls = 0;
  return (size) => Buffer.from(hkdfSync("sha256", bearer, seed, `flotilla secret ${(calls += 1)}`, size));
}

/** Passes a body through and adds it up. */
class DigestedBody extends Transform {
  readonly #hash = createHash("sha256");
  /** null: its end has not come. */
  digest: string | null = null;

  override _transform(chunk: Buffer, _encoding: BufferEncoding, callback: TransformCallback): void {
    this.#hash.update(chunk);
    callback(null, chunk);
  }

  override _flush(callback: TransformCallback): void {
    this.digest = this.#hash.digest("hex");
    callback();
  }
}

async function digestOf(message: IncomingMessage): Promise<string> {
  const hash = createHash("sha256");
  try {
    for await (const chunk of message) hash.update(chunk as Buffer);
  } catch {
    throw new CallerGone();
  }
  return hash.digest("hex");
}
