/**
 * What the generated methods hand to the client: one HTTP call as data, and the options that every method takes.
 */

/** What every method takes last. */
export interface CallOptions<Query = undefined> {
  /** The endpoint's query parameters, where it has any. */
  query?: Query | undefined;
  /** Ends the call; the method then throws a FlotillaError with code `aborted`. */
  signal?: AbortSignal | undefined;
  /** Ends the call after this time with code `timeout`. For a streamed answer: the time until the answer begins. */
  timeoutMs?: number | undefined;
  /** For POST: a repeated call with the same key within 24 hours gets the first one's answer and does nothing again. */
  idempotencyKey?: string | undefined;
  /** Further request headers. */
  headers?: Readonly<Record<string, string>> | undefined;
}

/** A body of raw bytes. A stream is sent as it comes, without being held in memory. */
export type BytesBody = Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | string;

/** One call, as the generated methods describe it. */
export interface ApiCall {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS";
  /** The path with its parameters filled in and escaped. */
  readonly path: string;
  readonly json?: unknown;
  readonly bytes?: BytesBody;
  /** `json`: parsed, undefined for an answer without a body. `empty`: undefined. `stream`: the Response itself. */
  readonly answer: "json" | "empty" | "stream";
}

/** Escapes a path parameter. Throws a TypeError for one that would make the URL name something else. */
export function segment(value: string | number): string {
  const text = String(value);
  if (text === "" || text === "." || text === "..") throw new TypeError(`"${text}" is no identifier`);
  return encodeURIComponent(text);
}

/** Escapes a parameter that is the rest of the path; its slashes stay, a leading one may be there or not. */
export function rest(value: string): string {
  return value
    .replace(/^\/+/, "")
    .split("/")
    .map((part) => (part === "" ? "" : segment(part)))
    .join("/");
}
