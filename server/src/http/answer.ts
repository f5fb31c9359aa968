/**
 * Answers on the wire, and requests that are passed on as they came.
 *
 * Always: a stream that fails half-way breaks the connection, so no caller takes a part for the whole.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import type { Refusal } from "@flotilla/contract/errors";
import type { CallerPresence } from "./caller-presence.ts";
import { sendBody } from "./send-body.ts";
import { endWhenStalled } from "./stalled.ts";
import type { Upgrade, UpgradeHandler } from "./upgrade.ts";

export interface RawRequest {
  readonly message: IncomingMessage;
  /** Path and query, as they were sent. */
  readonly url: string;
  /** The upgrade, if the request asks for one. */
  readonly upgrade: Upgrade | undefined;
  /** Whether a trusted proxy sent it, so that its `X-Forwarded-*` headers are believed. */
  readonly isFromProxy: boolean;
  /** Sends an answer before the final one, where its caller can read it. */
  readonly sendInterim: (status: number, head: readonly string[]) => void;
}

/**
 * Sends the answer of a machine, head and body, with `headers` added. Resolves when all of it was handed to
 * the network; false: it broke, or the caller has disconnected. Never rejects.
 */
export type SendAnswer = (response: ServerResponse, headers: Readonly<Record<string, string>>) => Promise<boolean>;

/** The answer of a bridge. */
export type PassedReply =
  | { readonly status: number; readonly sendAnswer: SendAnswer }
  | { readonly status: 101; readonly upgrade: UpgradeHandler };

export interface Outgoing {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | Readable;
  /** With status 101. */
  readonly upgrade?: UpgradeHandler;
  /** Instead of the body: sends the answer of a machine. */
  readonly sendAnswer?: SendAnswer;
}

/** The answer of a bridge. */
export const passOn = (reply: PassedReply): Outgoing => ({ ...reply, headers: {}, body: "" });

/** Hands the connection to the handler that answered 101; false when the caller has disconnected. */
export function sendUpgrade(
  upgrade: Upgrade,
  response: ServerResponse,
  headers: Readonly<Record<string, string>>,
  take: UpgradeHandler,
): boolean {
  if (upgrade.socket.destroyed) return false;
  response.detachSocket(response.socket as Socket);
  take(upgrade, headers);
  return true;
}

/** Names and values alternating, which Node writes with the least work. */
export type HeaderList = string[];

export function recordOf(headers: HeaderList): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at < headers.length; at += 2) record[headers[at] ?? ""] = headers[at + 1] ?? "";
  return record;
}

/** Where an answer goes. */
export interface ResponseTarget {
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  readonly presence: CallerPresence;
}

/** An answer that may last for hours. */
export interface EndsEarly {
  /** Sends the reason and ends. `reason` undefined: the server stops. */
  endEarly(reason?: Refusal): void;
}

const endsEarly = (body: Readable): body is Readable & EndsEarly => "endEarly" in body;

/**
 * Whether the whole answer was handed to the network; false when the caller has disconnected. A promise only
 * for a stream. `common`: headers of every answer, to which those of this answer are added.
 */
export function send(to: ResponseTarget, common: HeaderList, outgoing: Outgoing): boolean | Promise<boolean> {
  const { message, response } = to;
  const { status, headers, body } = outgoing;
  if (response.destroyed) {
    if (body instanceof Readable) body.destroy();
    return false;
  }
  const all = common;
  all.push("x-content-type-options", "nosniff");
  if (headers["cache-control"] === undefined) all.push("cache-control", "no-store");
  for (const name of Object.keys(headers)) all.push(name, headers[name] ?? "");
  if (body instanceof Readable) return sendStream(to, all, outgoing.status, body);
  if (status !== 204 && status !== 304) all.push("content-length", String(Buffer.byteLength(body)));
  response.writeHead(status, all);
  response.end(message.method === "HEAD" ? undefined : body);
  if (response.writableLength > 0) endWhenStalled(response);
  return true;
}

async function sendStream(
  { message, response, presence }: ResponseTarget,
  headers: HeaderList,
  status: number,
  body: Readable,
): Promise<boolean> {
  endWhenStalled(response);
  response.writeHead(status, headers);
  // A stream may be silent for long while its reader waits for the head.
  response.flushHeaders();
  if (message.method === "HEAD") {
    body.destroy();
    response.end();
    return true;
  }
  const endEarly = (): void => {
    if (!endsEarly(body)) return;
    body.endEarly();
    presence.end();
  };
  const endLost = (): void => {
    const { lost } = presence;
    if (lost === undefined) return;
    if (endsEarly(body)) body.endEarly(lost);
    else body.destroy(lost);
  };
  presence.closing.addEventListener("abort", endEarly);
  if (presence.closing.aborted) endEarly();
  // Reading the signal begins to watch the caller's right.
  presence.signal.addEventListener("abort", endLost);
  if (presence.signal.aborted) endLost();
  try {
    return await sendBody(body, response);
  } finally {
    presence.closing.removeEventListener("abort", endEarly);
    presence.signal.removeEventListener("abort", endLost);
  }
}
