/**
 * Sends requests to registries and token servers; handles redirects, stalls, size limits and what may be
 * disclosed of a failure.
 *
 * Always:
 * - each hop of a redirect is checked like the first request (checked-request.ts);
 * - a redirect never leads from https to http;
 * - credentials are sent only to the server they belong to;
 * - a redirect may lead to any public address, and to another one only if the operator listed both the
 *   endpoint and the hop's host;
 * - every wait is bounded: a request without data for `stallTimeoutMs` ends;
 * - every document has a size limit.
 *
 * Tenants see a RegistryError's `message`. It says whether the registry has the image, and of every other
 * failure only that it happened: what answered, how and how fast would turn the node into a port scanner.
 * `detail` is for the log.
 */
import { Agent as HttpAgent, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import type { ImageFault } from "@flotilla/contract/errors";
import { authorityOf, type RegistryList } from "@flotilla/contract/registries";
import { AddressRefused, type Resolve, sendChecked } from "@flotilla/base/checked-request";
import type { CallServer } from "./own-registry.ts";

/**
 * `missing`: the registry does not have it. `refused`: no retry can succeed. `failed`: a retry may succeed.
 */
export type RegistryFailure = "missing" | "refused" | "failed";

export class RegistryError extends Error {
  readonly kind: RegistryFailure;
  readonly detail: string;
  /**
   * The permanent fault that an allowed registry stated; null for all else, which tenants must not tell
   * apart.
   */
  readonly fault: ImageFault | null;

  constructor(
    kind: RegistryFailure,
    message: string,
    { detail = message, fault = null }: { readonly detail?: string; readonly fault?: ImageFault | null } = {},
  ) {
    super(message);
    this.kind = kind;
    this.detail = detail;
    this.fault = fault;
  }
}

/** A server to request an image from. */
export interface Endpoint {
  /** Without a trailing slash. */
  readonly base: string;
  /** As in the reference: `docker.io`. The name that tenants see. */
  readonly registry: string;
  /** Name in the log: `mirror http://127.0.0.1:5000` or `registry docker.io`. */
  readonly label: string;
  readonly allowedAddresses: "any" | "public";
  /** Whether it is the fleet's own, behind the server. */
  readonly isOwn?: boolean;
}

export interface TransportOptions {
  /** Reaches the fleet's own registry; null: the node has no server. */
  readonly callServer: CallServer | null;
  readonly registries: RegistryList;
  readonly resolve: Resolve;
  readonly clock: Clock;
  /** A connection that is silent for this long is closed. */
  readonly stallTimeoutMs: number;
}

interface Exchange {
  readonly url: URL;
  readonly allowedAddresses: "any" | "public";
  readonly headers: Readonly<Record<string, string>>;
  readonly stall: StallGuard;
  /**
   * Whether redirects to other servers are followed; not for tokens, which only the named server may issue.
   */
  readonly mayChangeServer: boolean;
}

const REDIRECTS_MAX = 5;
const REDIRECT_STATUSES = new Set([301, 302, 303, 307, 308]);
const UNAVAILABLE = "cannot be reached, or does not answer as a registry does; see the node's log for the reason";

export function registryFailure(kind: "refused" | "failed", endpoint: Endpoint, detail: string): RegistryError {
  return new RegistryError(kind, `registry ${endpoint.registry} ${UNAVAILABLE}`, {
    detail: `${endpoint.label} ${detail}`,
  });
}

/** The connections of one pull; disposing closes them. */
export class RegistryTransport implements Disposable {
  readonly options: TransportOptions;
  readonly #agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) };

  constructor(options: TransportOptions) {
    this.options = options;
  }

  [Symbol.dispose](): void {
    this.#agents.http.destroy();
    this.#agents.https.destroy();
  }

  /**
   * Returns the last answer of a chain of redirects, its body unread. Throws RegistryError, or the caller's
   * abort reason.
   */
  async get(endpoint: Endpoint, first: Exchange): Promise<IncomingMessage> {
    const { stall } = first;
    let exchange = first;
    for (let hops = 0; ; hops += 1) {
      const answer = await this.#send(endpoint, exchange);
      if (!REDIRECT_STATUSES.has(answer.statusCode ?? 0)) return answer;
      answer.destroy();
      const next = this.#follow(endpoint, exchange, answer.headers.location);
      if (typeof next === "string" || hops === REDIRECTS_MAX) {
        stall.end();
        throw registryFailure("refused", endpoint, typeof next === "string" ? next : "redirected too often");
      }
      exchange = next;
    }
  }

  async #send(endpoint: Endpoint, { url, allowedAddresses, headers, stall }: Exchange): Promise<IncomingMessage> {
    const { resolve, callServer } = this.options;
    stall.touch();
    try {
      if (endpoint.isOwn === true) {
        if (callServer === null) throw new Error("the node has no server");
        return await callServer({ method: "GET", path: `${url.pathname}${url.search}`, headers, signal: stall.signal });
      }
      return await sendChecked({
        url,
        allowedAddresses,
        resolve,
        agents: this.#agents,
        signal: stall.signal,
        headers: { "user-agent": "flotilla", "accept-encoding": "identity", ...headers },
      });
    } catch (error) {
      stall.end();
      throw stall.wasCancelled() ? error : connectionError(endpoint, error);
    }
  }

  /** The next hop, or the reason to refuse it. */
  #follow(endpoint: Endpoint, from: Exchange, location: string | undefined): Exchange | string {
    const { url, headers } = from;
    if (endpoint.isOwn === true) return "redirected, which a server does not";
    const next = location === undefined ? null : URL.parse(location, url.href);
    if (next === null || !/^https?:$/.test(next.protocol) || next.username !== "")
      return "redirected to something that is not a web address";
    if (url.protocol === "https:" && next.protocol !== "https:") return "redirected from https to http";
    if (authorityOf(next) === authorityOf(url)) return { ...from, url: next };
    if (!from.mayChangeServer) return "redirected a request for a token to another server";
    const { authorization: _dropped, ...others } = headers;
    const isListed =
      endpoint.allowedAddresses === "any" && this.options.registries.grant(authorityOf(next)) === "listed";
    return { ...from, url: next, allowedAddresses: isListed ? "any" : "public", headers: others };
  }
}

/** Aborts a request when no data has arrived for a while, or when the caller cancels. */
export class StallGuard {
  readonly #options: TransportOptions;
  readonly #parent: AbortSignal;
  readonly #controller = new AbortController();
  readonly #onAbort = (): void => this.#controller.abort(this.#parent.reason);
  #timer: { cancel(): void } | undefined;

  constructor(options: TransportOptions, parent: AbortSignal) {
    parent.throwIfAborted();
    this.#options = options;
    this.#parent = parent;
    parent.addEventListener("abort", this.#onAbort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  wasCancelled(): boolean {
    return this.#parent.aborted;
  }

  touch(): void {
    this.#timer?.cancel();
    const ms = this.#options.stallTimeoutMs;
    this.#timer = this.#options.clock.timer(ms, () => this.#controller.abort(new Stalled(ms)));
  }

  pause(): void {
    this.#timer?.cancel();
  }

  end(): void {
    this.#timer?.cancel();
    this.#parent.removeEventListener("abort", this.#onAbort);
  }
}

class Stalled extends Error {
  constructor(ms: number) {
    super(`sent no data for ${Math.round(ms / 1000)} s`);
  }
}

/** The body, chunk by chunk. */
export async function* readBody(
  answer: IncomingMessage,
  endpoint: Endpoint,
  stall: StallGuard,
): AsyncGenerator<Uint8Array> {
  try {
    stall.touch();
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      // The registry is not being waited for while the reader processes the chunk.
      stall.pause();
      yield chunk;
      stall.touch();
    }
  } catch (error) {
    throw stall.wasCancelled() ? error : connectionError(endpoint, stall.signal.aborted ? stall.signal.reason : error);
  } finally {
    stall.end();
  }
}

/** Reads a whole document of at most `bytesMax` bytes. */
export async function readAll(
  answer: IncomingMessage,
  endpoint: Endpoint,
  stall: StallGuard,
  bytesMax: number,
  { isLast = true }: { readonly isLast?: boolean } = {},
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const read = async (): Promise<Buffer> => {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      // The guard is not touched per chunk: the time limit is for the whole document, however slowly it
      // arrives.
      bytes += chunk.length;
      if (bytes > bytesMax) throw registryFailure("refused", endpoint, `sent more than ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  };
  try {
    stall.touch();
    return await orAborted(read(), stall.signal);
  } catch (error) {
    answer.destroy();
    if (error instanceof RegistryError || stall.wasCancelled()) throw error;
    throw connectionError(endpoint, error);
  } finally {
    if (isLast) stall.end();
  }
}

/**
 * Translates a status into what it says about the image; about the registry it discloses no more than other
 * errors.
 */
export function statusError(endpoint: Endpoint, status: number): RegistryError {
  const detail = `${endpoint.label} answered ${status}`;
  const label = `registry ${endpoint.registry}`;
  if (status === 404)
    return new RegistryError("missing", `${label} has no such image`, { detail, fault: "image_not_found" });
  if (status === 401 || status === 403) {
    const text = `${label} refuses access: the image does not exist there, or it needs credentials`;
    return new RegistryError("refused", text, { detail, fault: "image_refused" });
  }
  if (status === 429)
    return new RegistryError("failed", `${label} reports too many requests; try again later`, {
      detail,
    });
  return registryFailure("failed", endpoint, `answered ${status}`);
}

function connectionError(endpoint: Endpoint, error: unknown): RegistryError {
  if (error instanceof AddressRefused) return registryFailure("refused", endpoint, `cannot be used: ${error.message}`);
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const reason = cause instanceof Error ? cause.message : "connection lost";
  return registryFailure("failed", endpoint, `cannot be reached: ${reason}`);
}
