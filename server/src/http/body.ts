/**
 * Reads the body of a request into memory, bounded.
 *
 * Always:
 * - At most the endpoint's limit is held, and every byte is taken from the holder's share first. A longer
 *   body is refused with 413; a body that the share has no room for with 429 or 503.
 * - A body that arrives in small pieces takes at most twice its size in memory.
 * - Large pieces are kept as they arrive and never copied here.
 * - A body that is moderately too long is read to its end and discarded, because a client that is still
 *   sending would otherwise see a broken connection instead of the answer.
 */
import type { IncomingMessage } from "node:http";
import { Pieces } from "@flotilla/base/pieces";
import { Refusal } from "@flotilla/contract/errors";
import type { BodyShare } from "../fairness/body-share.ts";
import type { BodyWatch } from "../fairness/body-watch.ts";
import { DRAIN_BYTES_MAX } from "../fairness/bounds.ts";
import { awaitsContinue } from "./continue.ts";

/** Thrown when the caller went away before its body was complete. No answer is possible. */
export class CallerGone extends Error {
  constructor() {
    super("the caller went away while sending");
    this.name = "CallerGone";
  }
}

const NOTHING = Buffer.alloc(0);

/** Whether a body comes, however long: what says neither its length nor how it is sent has none. */
export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";

export interface Reading {
  readonly maxBytes: number;
  readonly share: BodyShare;
  readonly watch: BodyWatch;
}

/**
 * The pieces of the body, in order. By events, because an async iterator costs several times as much for one
 * chunk.
 */
export function readBody(incoming: IncomingMessage, { maxBytes, share, watch }: Reading): Promise<readonly Buffer[]> {
  if (incoming.destroyed) return Promise.reject(new CallerGone());
  return new Promise((resolve, reject) => {
    const declared = Number(incoming.headers["content-length"] ?? Number.NaN);
    // Nothing is held of a body that is declared too large, and never more than is declared.
    const gathered = new Pieces(declared > maxBytes ? 0 : Math.min(maxBytes, declared || maxBytes), (bytes) =>
      share.grow(bytes),
    );
    const discard = (): void => {
      gathered.clear();
      share.release();
    };
    // It is not asked to send what is refused.
    if (declared > maxBytes && awaitsContinue(incoming)) return reject(tooLarge(maxBytes, { connection: "close" }));
    let size = 0;
    const finish = (end: () => void): void => {
      forget();
      incoming.off("data", take);
      end();
    };
    const refuse = (refusal: Refusal): void =>
      finish(() => {
        discard();
        // The rest is discarded, so that the caller gets to its answer.
        incoming.resume();
        reject(refusal);
      });
    const take = (chunk: Buffer): void => {
      size += chunk.length;
      if (size > maxBytes + DRAIN_BYTES_MAX) return refuse(tooLarge(maxBytes, { connection: "close" }));
      if (size > maxBytes || declared > maxBytes) return discard();
      const refusal = gathered.add(chunk);
      if (refusal !== null) refuse(refusal);
    };
    const complete = (): void => (size > maxBytes ? reject(tooLarge(maxBytes, {})) : resolve(gathered.all()));
    const forget = watch.buffered(incoming, refuse);
    incoming.on("data", take);
    incoming.on("end", () => finish(complete));
    incoming.on("error", () => finish(() => reject(new CallerGone())));
    incoming.on("close", () => {
      if (!incoming.readableEnded) finish(() => reject(new CallerGone()));
    });
  });
}

function tooLarge(maxBytes: number, headers: Readonly<Record<string, string>>): Refusal {
  const text = `the request body is larger than the ${maxBytes} bytes this endpoint accepts`;
  return new Refusal("body_too_large", text, { headers });
}

/** All of them in one buffer. */
export function joined(pieces: readonly Buffer[]): Buffer {
  const [first = NOTHING] = pieces;
  return pieces.length <= 1 ? first : Buffer.concat(pieces);
}
