/**
 * Requests to registries and token servers: redirects, silence, sizes, and what may be said of a failure.
 *
 * Always: each hop of a redirect is checked like the first request (checked-request.ts); a hop never goes from https to
 * http, and credentials never leave the server they are for. A hop may go to any public address; to another one only
 * when the endpoint was named by the operator and the hop's host was too. Every wait is bounded: silence of
 * `stallTimeoutMs` ends a request. Every document has a size limit.
 *
 * A RegistryError's `message` is for tenants. It tells whether the registry has the image, and of all else only that it
 * failed: what answered, how and how fast would make a port scanner of the node. `detail` is for the node's log.
 */
import { Agent as HttpAgent, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import type { ImageFault } from "@flotilla/contract/errors";
import { authorityOf, type RegistryList } from "@flotilla/contract/registries";
import { AddressRefused, type Resolve, sendChecked } from "./checked-request.ts";

/** `missing`: it is not there. `refused`: not for us, ever. `failed`: worth another try. */
export type RegistryFailure = "missing" | "refused" | "failed";

export class RegistryError extends Error {
  readonly kind: RegistryFailure;
  readonly detail: string;
  /** What a registry that may be asked says of the image for good; null of all else, which looks alike to tenants. */
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

/** A server that is asked for an image. */
export interface Endpoint {
  /** Without a slash at the end. */
  readonly base: string;
  /** As the reference has it: `docker.io`. What tenants are told. */
  readonly registry: string;
  /** `mirror http://127.0.0.1:5000` or `registry docker.io`: for the log. */
  readonly label: string;
  readonly reach: "any" | "public";
}

export interface TransportOptions {
  readonly registries: RegistryList;
  readonly resolve: Resolve;
  readonly clock: Clock;
  /** Silence on a connection after which it is given up. */
  readonly stallTimeoutMs: number;
}

interface Exchange {
  readonly url: URL;
  readonly reach: "any" | "public";
  readonly headers: Readonly<Record<string, string>>;
  readonly stall: StallGuard;
  /** Whether redirects may lead to another server; a token comes from the one that was named, or from none. */
  readonly mayLeave: boolean;
}

const REDIRECTS_MAX = 5;
const REDIRECT_STATUSES = new Set([301, 302, 303, 307, 308]);
const UNTOLD = "cannot be asked, or does not answer as a registry does; the node's log says more";

export function registryFailure(kind: "refused" | "failed", endpoint: Endpoint, detail: string): RegistryError {
  return new RegistryError(kind, `registry ${endpoint.registry} ${UNTOLD}`, { detail: `${endpoint.label} ${detail}` });
}

/** Holds the connections of one pull; to be closed with it. */
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

  /** The last answer of a chain of redirects, its body unread. Throws RegistryError, or the caller's reason to leave. */
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
        throw registryFailure("refused", endpoint, typeof next === "string" ? next : "redirects too often");
      }
      exchange = next;
    }
  }

  async #send(endpoint: Endpoint, { url, reach, headers, stall }: Exchange): Promise<IncomingMessage> {
    const { resolve } = this.options;
    stall.touch();
    try {
      return await sendChecked({
        url,
        reach,
        resolve,
        agents: this.#agents,
        signal: stall.signal,
        headers: { "user-agent": "flotilla", "accept-encoding": "identity", ...headers },
      });
    } catch (error) {
      stall.end();
      throw stall.wasCanceled() ? error : reachError(endpoint, error);
    }
  }

  /** The next hop, or why there is none. */
  #follow(endpoint: Endpoint, from: Exchange, location: string | undefined): Exchange | string {
    const { url, headers } = from;
    const next = location === undefined ? null : URL.parse(location, url.href);
    if (next === null || !/^https?:$/.test(next.protocol) || next.username !== "") return "redirects to no web address";
    if (url.protocol === "https:" && next.protocol !== "https:") return "redirects from https to http";
    if (authorityOf(next) === authorityOf(url)) return { ...from, url: next };
    if (!from.mayLeave) return "redirects a request for a token to another server";
    const { authorization: _left, ...others } = headers;
    const isNamed = endpoint.reach === "any" && this.options.registries.right(authorityOf(next)) === "listed";
    return { ...from, url: next, reach: isNamed ? "any" : "public", headers: others };
  }
}

/** Ends a request when nothing has arrived for a while, or when the caller gives up. */
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

  wasCanceled(): boolean {
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
    super(`sent nothing for ${Math.round(ms / 1000)} s`);
  }
}

/** The body as it comes. */
export async function* readBody(
  answer: IncomingMessage,
  endpoint: Endpoint,
  stall: StallGuard,
): AsyncGenerator<Uint8Array> {
  try {
    stall.touch();
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      // While the reader is busy with the chunk, nobody waits for the registry.
      stall.pause();
      yield chunk;
      stall.touch();
    }
  } catch (error) {
    throw stall.wasCanceled() ? error : reachError(endpoint, stall.signal.aborted ? stall.signal.reason : error);
  } finally {
    stall.end();
  }
}

/** The whole of a document that has at most `bytesMax` bytes. */
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
      // The guard is not touched per chunk: a document has the whole time, however slowly it drips.
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
    if (error instanceof RegistryError || stall.wasCanceled()) throw error;
    throw reachError(endpoint, error);
  } finally {
    if (isLast) stall.end();
  }
}

/** What a status says of the image; of the registry it says no more than others do. */
export function statusError(endpoint: Endpoint, status: number): RegistryError {
  const detail = `${endpoint.label} answered ${status}`;
  const label = `registry ${endpoint.registry}`;
  if (status === 404)
    return new RegistryError("missing", `${label} has no such image`, { detail, fault: "image_not_found" });
  if (status === 401 || status === 403) {
    const text = `${label} refuses it: no such image there, or it needs credentials`;
    return new RegistryError("refused", text, { detail, fault: "image_refused" });
  }
  if (status === 429)
    return new RegistryError("failed", `${label} answers that there were too many requests; try again later`, {
      detail,
    });
  return registryFailure("failed", endpoint, `answered ${status}`);
}

function reachError(endpoint: Endpoint, error: unknown): RegistryError {
  if (error instanceof AddressRefused) return registryFailure("refused", endpoint, `cannot be asked: ${error.message}`);
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const reason = cause instanceof Error ? cause.message : "connection lost";
  return registryFailure("failed", endpoint, `cannot be reached: ${reason}`);
}
