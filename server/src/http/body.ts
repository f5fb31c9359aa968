/**
 * Reads the body of a request: bounded, as bytes; and what its JSON says, as the endpoint declares it.
 *
 * Always:
 * - at most the endpoint's limit is held in memory, and every byte of it is taken from the holder's share first; what is
 *   longer is refused with 413, what the share has no room for with 429 or 503;
 * - however small the pieces in which a body comes, it takes no more memory than twice its bytes;
 * - a moderately longer body is read to its end and thrown away first, because a client that is still sending would
 *   otherwise see a broken connection in place of the answer.
 */
import type { IncomingMessage } from "node:http";
import type { Body } from "@flotilla/contract/endpoint";
import { Refusal } from "@flotilla/contract/errors";
import type { Budget } from "./budget.ts";
import type { BodyWatch } from "./body-watch.ts";
import { DRAIN_BYTES_MAX } from "./bounds.ts";
import type { Check } from "./validate.ts";

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

/** Bytes of a body that one holder has in this server's memory, until `letGo`. */
export class BodyShare {
  readonly #budget: Budget;
  readonly #holder: string;
  #bytes = 0;

  constructor(budget: Budget, holder: string) {
    this.#budget = budget;
    this.#holder = holder;
  }

  /** null when there is room. */
  grow(bytes: number): Refusal | null {
    const shortage = this.#budget.take(this.#holder, bytes);
    if (shortage !== null) return refusalOf(shortage, this.#budget);
    this.#bytes += bytes;
    return null;
  }

  letGo(): void {
    this.#budget.giveBack(this.#holder, this.#bytes);
    this.#bytes = 0;
  }
}

function refusalOf(shortage: "holder" | "all", { perHolder }: Budget): Refusal {
  const headers = { "retry-after": "1" };
  if (shortage === "all") {
    const text = "the server holds as many request bodies as it has room for; send the request again in a moment";
    return new Refusal("unavailable", text, headers);
  }
  const text =
    `the requests of this tenant that run now hold ${perHolder} bytes of bodies, which is all it may; ` +
    "send fewer at once, or upload large input as a file";
  return new Refusal("rate_limited", text, headers);
}

export interface Reading {
  readonly maxBytes: number;
  readonly share: BodyShare;
  readonly watch: BodyWatch;
}

/** By events, not as an async iterator, which takes several times as long for a body that is one chunk. */
export function readBody(incoming: IncomingMessage, { maxBytes, share, watch }: Reading): Promise<Buffer> {
  if (incoming.destroyed) return Promise.reject(new CallerGone());
  return new Promise((resolve, reject) => {
    const declared = Number(incoming.headers["content-length"] ?? Number.NaN);
    // Of what is declared to be too large nothing is held, and of the rest no more than is declared.
    const gathered = new Gathered(share, declared > maxBytes ? 0 : Math.min(maxBytes, declared || maxBytes));
    let size = 0;
    const finish = (end: () => void): void => {
      watch.forget(incoming);
      incoming.off("data", onData);
      end();
    };
    const refuse = (refusal: Refusal): void =>
      finish(() => {
        gathered.clear();
        // What still comes is thrown away, so that the caller gets to its answer.
        incoming.resume();
        reject(refusal);
      });
    const tooLarge = (headers: Readonly<Record<string, string>>): Refusal => {
      const text = `the request body is larger than the ${maxBytes} bytes this endpoint accepts`;
      return new Refusal("body_too_large", text, headers);
    };
    const onData = (chunk: Buffer): void => {
      size += chunk.length;
      if (size > maxBytes + DRAIN_BYTES_MAX) return refuse(tooLarge({ connection: "close" }));
      if (size > maxBytes || declared > maxBytes) return gathered.clear();
      const refusal = gathered.add(chunk);
      if (refusal !== null) refuse(refusal);
    };
    watch.buffered(incoming, refuse);
    incoming.on("data", onData);
    incoming.on("end", () =>
      finish(() => {
        if (size > maxBytes) reject(tooLarge({}));
        else resolve(gathered.bytes());
      }),
    );
    incoming.on("error", () => finish(() => reject(new CallerGone())));
    incoming.on("close", () => {
      if (!incoming.readableEnded) finish(() => reject(new CallerGone()));
    });
  });
}

const CAPACITY_MIN = 4096;

/** One buffer that grows: a body of a million chunks is not a million objects. */
class Gathered {
  readonly #share: BodyShare;
  readonly #max: number;
  #buffer: Buffer = NOTHING;
  #size = 0;

  constructor(share: BodyShare, max: number) {
    this.#share = share;
    this.#max = max;
  }

  /** null when there is room. */
  add(chunk: Buffer): Refusal | null {
    const size = this.#size + chunk.length;
    // A body that is one chunk is not copied.
    const isWhole = this.#size === 0 && size === this.#max;
    const refusal = isWhole ? this.#share.grow(size) : size > this.#buffer.length ? this.#grow(size) : null;
    if (refusal !== null) return refusal;
    if (isWhole) this.#buffer = chunk;
    else chunk.copy(this.#buffer, this.#size);
    this.#size = size;
    return null;
  }

  bytes(): Buffer {
    return this.#buffer.length === this.#size ? this.#buffer : this.#buffer.subarray(0, this.#size);
  }

  clear(): void {
    this.#buffer = NOTHING;
    this.#size = 0;
    this.#share.letGo();
  }

  #grow(size: number): Refusal | null {
    const capacity = Math.max(size, Math.min(this.#max, Math.max(CAPACITY_MIN, 2 * this.#buffer.length)));
    const refusal = this.#share.grow(capacity - this.#buffer.length);
    if (refusal !== null) return refusal;
    const grown = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(grown, 0, 0, this.#size);
    this.#buffer = grown;
    return null;
  }
}

/** What a body says, as the endpoint declares it. Throws a Refusal when it does not fit. */
export function bodyOf(body: unknown, declared: Body & { kind: "json" }, check: Check | undefined): unknown {
  if (body === undefined && !declared.isOptional)
    throw new Refusal("invalid_json", "Failed to parse the request body as JSON: the body is empty");
  if ((body === undefined || body === null) && declared.isOptional) return undefined;
  const fault = check?.(body);
  if (fault !== undefined)
    throw new Refusal("invalid_body", `Failed to deserialize the JSON body into the target type: ${fault}`);
  return body;
}
