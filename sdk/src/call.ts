/**
 * One HTTP call as data, which the generated methods pass to the client, and the options that every method
 * takes.
 */

/** The last parameter of every method. */
export interface CallOptions<Query = undefined> {
  /** The endpoint's query parameters, where it has any. */
  query?: Query | undefined;
  /**
   * Cancels the call; the method, or the iteration of its output, then throws a FlotillaError with code
   * `aborted`. A socket is closed.
   */
  signal?: AbortSignal | undefined;
  /**
   * Ends the call after this time with code `timeout`. For a streamed answer: the time until the answer
   * begins; for a socket, which is closed: until it is open.
   */
  timeoutMs?: number | undefined;
  /**
   * Key of a POST: a repeated call with it within 24 hours gets the first call's answer and changes nothing.
   * With one, the client itself retries the call.
   */
  idempotencyKey?: string | undefined;
  /** Additional request headers. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Receives the headers of a successful answer, such as `link` and `x-cursor` of a list. */
  onHeaders?: ((headers: Headers) => void) | undefined;
}

/** A body of raw bytes. A stream is sent as it arrives, without being held in memory. */
export type BytesBody = Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | string;

/** One call, as the generated methods describe it. */
export interface ApiCall {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS";
  /** The path with its parameters filled in and escaped. */
  readonly path: string;
  readonly json?: unknown;
  readonly bytes?: BytesBody;
  /**
   * `json`: parsed, undefined for an answer without a body. `empty`: undefined. `stream`: the Response
   * itself.
   */
  readonly answer: "json" | "empty" | "stream";
}

/** Escapes a path parameter. Throws a TypeError for one that would change which resource the URL names. */
export function segment(value: string | number): string {
  const text = String(value);
  if (text === "" || text === "." || text === "..") throw new TypeError(`"${text}" is not an identifier`);
  return encodeURIComponent(text);
}

/** Escapes a parameter that is the rest of the path. Slashes are kept; a leading one is optional. */
export function rest(value: string): string {
  return value
    .replace(/^\/+/, "")
    .split("/")
    .map((part) => (part === "" ? "" : segment(part)))
    .join("/");
}
