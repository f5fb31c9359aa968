/**
 * The fleet's own registry, which a node reaches through its server, as itself.
 *
 * The link has the connections (link/server-calls.ts); images and packages are below it, and get this.
 */
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";

export interface ServerCall {
  readonly method: "GET" | "HEAD" | "PATCH" | "POST" | "PUT";
  /** With its query, below `/v2/`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Default: none. A stream is destroyed when the call has failed, or is answered before its end. */
  readonly body?: Buffer | Readable;
  readonly signal: AbortSignal;
}

/**
 * Resolves with the answer, its body unread; also when it comes before the call's body was sent. Rejects with
 * an Error, or the signal's reason, when there is none.
 */
export type CallServer = (call: ServerCall) => Promise<IncomingMessage>;
