/**
 * What stores the bytes of the registry: a registry of the OCI distribution protocol that only this server
 * reaches, its own (embedded.ts) or another one (external.ts).
 *
 * Always: every request has deadlines for silence, and a backend that does not answer is BackendUnavailable.
 */
import type { Readable } from "node:stream";
import { messageOf } from "@flotilla/base/errors";
import type { Dispatcher } from "undici";
import { OciError, type OciCode, unavailable } from "./oci-error.ts";

export interface BackendRequest {
  readonly method: "DELETE" | "GET" | "HEAD" | "PATCH" | "POST" | "PUT";
  /** Made by `urlOf`, or by `located`. */
  readonly url: URL;
  readonly repository: string;
  readonly isWrite: boolean;
  /** A repository that is read as well. */
  readonly from?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | AsyncIterable<Buffer>;
  readonly signal?: AbortSignal | undefined;
}

export interface BackendAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** To be read, or destroyed. */
  readonly body: Readable;
}

export interface Backend {
  /** null: it serves. Otherwise the reason and what to do, as a sentence. */
  readonly fault: string | null;
  /** `path`: below the repository, such as `manifests/latest`. */
  urlOf(repository: string, path: string): URL;
  /** Where a blob of another repository is asked for. */
  mountUrl(repository: string, of: { readonly digest: string; readonly from: string }): URL;
  send(request: BackendRequest): Promise<BackendAnswer>;
  /** Bytes that may be stored now; null: that is not known. */
  freeBytes(): Promise<number | null>;
  /** Deletes blobs that no manifest names, and resolves with their number; null: others do that. */
  readonly collect: ((signal: AbortSignal) => Promise<number>) | null;
  stop(): Promise<void>;
}

/** The backend did not answer, or the connection broke. What it has done is not known. */
export class BackendUnavailable extends Error {
  constructor(cause: unknown) {
    super(`the registry's storage does not answer: ${messageOf(cause)}`, { cause });
    this.name = "BackendUnavailable";
  }
}

/** A commit reads the whole blob once more. */
const HEAD_MS = 120_000;
const SILENCE_MS = 60_000;
const ERROR_BYTES_MAX = 64 * 1024;

/** Sends a request over undici. */
export async function sendOver(dispatcher: Dispatcher, request: BackendRequest): Promise<BackendAnswer> {
  const { url, method, body, signal } = request;
  try {
    const answer = await dispatcher.request({
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      ...{ method, headers: { ...request.headers } },
      ...(body === undefined ? {} : { body: body as Buffer }),
      ...(signal === undefined ? {} : { signal }),
      headersTimeout: HEAD_MS,
      bodyTimeout: SILENCE_MS,
    });
    const headers: Record<string, string | undefined> = {};
    for (const [name, value] of Object.entries(answer.headers)) headers[name] = Array.isArray(value) ? value[0] : value;
    return { status: answer.statusCode, headers, body: answer.body };
  } catch (error) {
    if (signal?.aborted === true) throw signal.reason;
    throw new BackendUnavailable(error);
  }
}

/** Where an upload continues. */
export function located({ headers }: BackendAnswer, { url }: Pick<BackendRequest, "url">): URL {
  const { location } = headers;
  if (location === undefined || !URL.canParse(location, url.href))
    throw new BackendUnavailable(new Error("it did not say where the upload continues"));
  return new URL(location, url);
}

/** Reads a body, bounded. Throws when it is longer, or breaks. */
export async function readAll({ body }: Pick<BackendAnswer, "body">, maxBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > maxBytes) throw new Error(`its answer is longer than ${maxBytes} bytes`);
      pieces.push(piece);
    }
  } catch (error) {
    throw new BackendUnavailable(error);
  }
  return Buffer.concat(pieces);
}

/** Reads what is left of an answer, so that its connection can be used again. */
export const discard = async (answer: Pick<BackendAnswer, "body">): Promise<void> => {
  await readAll(answer, ERROR_BYTES_MAX).catch(() => answer.body.destroy());
};

/** The refusal for an answer that is not the expected one. */
export async function refusalOfBackend(answer: BackendAnswer): Promise<OciError> {
  const { status, headers } = answer;
  const text = (await readAll(answer, ERROR_BYTES_MAX).catch(() => Buffer.alloc(0))).toString("utf8");
  const { code, message } = firstError(text);
  const seconds = /^\d{1,4}$/.test(headers["retry-after"] ?? "") ? Number(headers["retry-after"]) : 5;
  if (/no space left|quota exceeded/i.test(text))
    return unavailable("the registry's disk is full; delete packages, or ask the operator for room", 60);
  if (status === 429) return new OciError(429, "TOOMANYREQUESTS", message, { "retry-after": String(seconds) });
  if (status === 401 || status === 403 || status === 407)
    return unavailable("the registry's storage refuses this server; ask the operator to check its credentials", 60);
  if (status >= 400 && status < 500) return new OciError(status, code as OciCode, message);
  return unavailable(`the registry's storage failed with status ${status}; try again`, seconds);
}

function firstError(text: string): { readonly code: string; readonly message: string } {
  const otherwise = { code: "UNKNOWN", message: "the registry's storage refuses the request" };
  try {
    const { errors } = JSON.parse(text) as { errors?: { code?: unknown; message?: unknown }[] };
    const [first] = errors ?? [];
    if (typeof first?.code !== "string" || !/^[A-Z_]{1,64}$/.test(first.code)) return otherwise;
    const message = typeof first.message === "string" ? first.message.slice(0, 500) : otherwise.message;
    return { code: first.code, message };
  } catch {
    return otherwise;
  }
}
