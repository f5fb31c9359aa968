/**
 * Speaks to registries: the two reads of the distribution protocol that a pull needs, on Node's fetch.
 *
 * Which server is asked: the mirror configured for the registry, then, if that fails in any way, the registry itself.
 * Plain HTTP only to loopback, to registries configured as insecure and to mirrors whose URL says so.
 * Credentials go to the host they were written for and to the token server it names, never over plain HTTP to a
 * token server when the registry itself speaks TLS.
 *
 * Always: every wait is bounded (silence of `stallTimeoutMs` ends a request), every answer has a size limit, nothing
 * an answer says is put into an error text: a tenant chooses the address, and must not read the operator's network
 * with it. What arrives is not trusted here either; callers compare digests.
 */
import { createHash } from "node:crypto";
import { type Clock, deadlineSignal } from "../clock.ts";
import type { Credentials } from "./credentials.ts";
import { MANIFEST_BYTES_MAX, MANIFEST_TYPES } from "./manifest.ts";
import type { Reference } from "@flotilla/contract/reference";

export interface RegistryOptions {
  /** Registry → base URL. */
  readonly mirrors: ReadonlyMap<string, string>;
  readonly insecureRegistries: readonly string[];
  readonly clock: Clock;
  /** Silence on a connection after which it is given up. */
  readonly stallTimeoutMs: number;
  /** Before the first retry; doubles with each. */
  readonly retryDelayMs: number;
}

/** `missing`: it is not there. `refused`: not for us. `failed`: worth another try. */
export type RegistryFailure = "missing" | "refused" | "failed";

export class RegistryError extends Error {
  readonly kind: RegistryFailure;

  constructor(kind: RegistryFailure, message: string) {
    super(message);
    this.kind = kind;
  }
}

export interface ManifestAnswer {
  readonly bytes: Buffer;
  readonly mediaType: string | null;
  readonly digest: string;
}

export interface BlobAnswer {
  /** Where the body starts in the blob: what was asked for, or 0 when the registry does not do ranges. */
  readonly offset: number;
  readonly chunks: AsyncIterable<Uint8Array>;
}

interface Endpoint {
  /** Without a slash at the end. */
  readonly base: string;
  /** `mirror http://127.0.0.1:5000` or `registry docker.io`. */
  readonly label: string;
}

interface Call {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly repository: string;
  readonly signal: AbortSignal;
}

const MANIFEST_TRIES_MAX = 3;
const TOKEN_BYTES_MAX = 1024 * 1024;
const ACCEPT = Object.values(MANIFEST_TYPES).join(", ");

/** Lives as long as one pull, and holds its tokens. */
export class RegistryClient {
  readonly #options: RegistryOptions;
  readonly #credentials: Credentials;
  /** Authorization headers that worked, by endpoint and repository. */
  readonly #authorizations = new Map<string, string>();

  constructor(options: RegistryOptions, credentials: Credentials) {
    this.#options = options;
    this.#credentials = credentials;
  }

  /** The manifest or list under a tag or digest; a digest is verified. Throws RegistryError. */
  async manifest(reference: Reference, target: string, signal: AbortSignal): Promise<ManifestAnswer> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#firstOf(reference, (endpoint) => this.#manifestFrom(endpoint, reference, target, signal));
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof RegistryError) || error.kind !== "failed" || tries === MANIFEST_TRIES_MAX) throw error;
        await this.#options.clock.sleep(this.#options.retryDelayMs * 2 ** (tries - 1), signal);
      }
    }
  }

  /** A blob's bytes from `offset` on, without retries and unverified. Throws RegistryError, also while it is read. */
  blob(reference: Reference, digest: string, offset: number, signal: AbortSignal): Promise<BlobAnswer> {
    return this.#firstOf(reference, async (endpoint) => {
      const path = `/v2/${reference.repository}/blobs/${digest}`;
      const headers = offset > 0 ? { range: `bytes=${offset}-` } : {};
      const stall = new StallGuard(this.#options, signal);
      const call = { path, headers, repository: reference.repository, signal: stall.signal };
      const response = await this.#request(endpoint, call, stall);
      const start = response.status === 206 ? rangeStart(response) : 0;
      return { offset: start, chunks: readBody(response, endpoint, stall) };
    });
  }

  async #manifestFrom(
    endpoint: Endpoint,
    reference: Reference,
    target: string,
    signal: AbortSignal,
  ): Promise<ManifestAnswer> {
    const stall = new StallGuard(this.#options, signal);
    const path = `/v2/${reference.repository}/manifests/${target}`;
    const call = { path, headers: { accept: ACCEPT }, repository: reference.repository, signal: stall.signal };
    const response = await this.#request(endpoint, call, stall);
    const bytes = await readAll(response, endpoint, stall, MANIFEST_BYTES_MAX);
    const digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    if (target.startsWith("sha256:") && target !== digest)
      throw new RegistryError("failed", `${endpoint.label} sent a manifest with another digest`);
    const mediaType = response.headers.get("content-type")?.split(";")[0]?.trim() ?? null;
    return { bytes, mediaType, digest };
  }

  async #firstOf<T>(reference: Reference, ask: (endpoint: Endpoint) => Promise<T>): Promise<T> {
    const failures: RegistryError[] = [];
    for (const endpoint of this.#endpointsOf(reference.registry)) {
      try {
        return await ask(endpoint);
      } catch (error) {
        if (!(error instanceof RegistryError)) throw error;
        failures.push(error);
      }
    }
    // The first one asked decides: a mirror that is down may be back soon; a mirror that knows no such image while the
    // registry is out of reach will not change its mind, and trying again would only make the caller wait.
    const kind = failures[0]?.kind ?? "failed";
    throw new RegistryError(kind, failures.map((failure) => failure.message).join(", and "));
  }

  #endpointsOf(registry: string): readonly Endpoint[] {
    const host = registry === "docker.io" ? "registry-1.docker.io" : registry;
    const scheme = isLoopback(host) || this.#options.insecureRegistries.includes(registry) ? "http" : "https";
    const origin: Endpoint = { base: `${scheme}://${host}`, label: `registry ${registry}` };
    const mirror = this.#options.mirrors.get(registry)?.replace(/\/+$/, "");
    if (mirror === undefined) return [origin];
    const base = /^https?:\/\//.test(mirror) ? mirror : `https://${mirror}`;
    return [{ base, label: `mirror ${base}` }, origin];
  }

  /** An answer that is not an error, with authorization if the server wants one. */
  async #request(endpoint: Endpoint, call: Call, stall: StallGuard): Promise<Response> {
    const key = `${endpoint.base} ${call.repository}`;
    for (let isRetry = false; ; isRetry = true) {
      const authorization = this.#authorizations.get(key);
      const headers = { ...call.headers, ...(authorization === undefined ? {} : { authorization }) };
      const response = await this.#fetch(endpoint, `${endpoint.base}${call.path}`, headers, call.signal, stall);
      if (response.ok) return response;
      await response.body?.cancel().catch(() => undefined);
      if (response.status === 401 && !isRetry) {
        const challenge = parseChallenge(response.headers.get("www-authenticate") ?? "");
        const answer = await this.#authorize(endpoint, challenge, call, stall);
        if (answer !== undefined) {
          this.#authorizations.set(key, answer);
          continue;
        }
      }
      stall.end();
      throw statusError(endpoint, response.status);
    }
  }

  async #authorize(
    endpoint: Endpoint,
    challenge: Challenge,
    call: Call,
    stall: StallGuard,
  ): Promise<string | undefined> {
    const basic = this.#credentials.basicFor(new URL(endpoint.base).host);
    if (challenge.scheme === "basic") return basic;
    const realm = challenge.scheme === "bearer" ? parseUrl(challenge.parameters.get("realm")) : undefined;
    if (realm === undefined) return undefined;
    if (endpoint.base.startsWith("https:") && realm.protocol !== "https:")
      throw new RegistryError("refused", `${endpoint.label} names a token server without TLS`);
    const service = challenge.parameters.get("service");
    if (service !== undefined) realm.searchParams.set("service", service);
    realm.searchParams.set("scope", `repository:${call.repository}:pull`);
    const headers: Record<string, string> = basic === undefined ? {} : { authorization: basic };
    const server = { base: endpoint.base, label: `the token server of ${endpoint.label}` };
    const response = await this.#fetch(server, realm.href, headers, call.signal, stall);
    if (!response.ok) {
      await response.body?.cancel().catch(() => undefined);
      throw statusError(server, response.status);
    }
    const bytes = await readAll(response, server, stall, TOKEN_BYTES_MAX, { isLast: false });
    return tokenOf(bytes, server);
  }

  async #fetch(
    endpoint: Endpoint,
    url: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
    stall: StallGuard,
  ): Promise<Response> {
    stall.touch();
    try {
      // `identity`: fetch would undo a compression on the way, and digests are of what is stored.
      return await fetch(url, {
        headers: { "user-agent": "flotilla", "accept-encoding": "identity", ...headers },
        signal,
      });
    } catch (error) {
      stall.end();
      throw stall.wasCanceled() ? error : reachError(endpoint, error);
    }
  }
}

/** Ends a request when nothing has arrived for a while, or when the caller gives up. */
class StallGuard {
  readonly #options: RegistryOptions;
  readonly #parent: AbortSignal;
  readonly #controller = new AbortController();
  readonly #onAbort = (): void => this.#controller.abort(this.#parent.reason);
  #timer: { cancel(): void } | undefined;

  constructor(options: RegistryOptions, parent: AbortSignal) {
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

function bodyOf(response: Response): AsyncIterable<Uint8Array> | readonly Uint8Array[] {
  return response.body ?? [];
}

async function* readBody(response: Response, endpoint: Endpoint, stall: StallGuard): AsyncGenerator<Uint8Array> {
  try {
    stall.touch();
    for await (const chunk of bodyOf(response)) {
      // While the reader is busy with the chunk, nobody waits for the registry.
      stall.pause();
      yield chunk;
      stall.touch();
    }
  } catch (error) {
    throw stall.wasCanceled() ? error : reachError(endpoint, error);
  } finally {
    stall.end();
  }
}

async function readAll(
  response: Response,
  endpoint: Endpoint,
  stall: StallGuard,
  bytesMax: number,
  { isLast = true }: { readonly isLast?: boolean } = {},
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    stall.touch();
    for await (const chunk of bodyOf(response)) {
      // Not touched per chunk: a document of at most 4 MiB has the whole time, however slowly it drips.
      bytes += chunk.length;
      if (bytes > bytesMax) throw new RegistryError("refused", `${endpoint.label} sent more than ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  } catch (error) {
    if (error instanceof RegistryError || stall.wasCanceled()) throw error;
    throw reachError(endpoint, error);
  } finally {
    if (isLast) stall.end();
  }
}

interface Challenge {
  readonly scheme: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/** The first challenge of a WWW-Authenticate header. */
function parseChallenge(header: string): Challenge {
  const text = header.slice(0, 8192);
  const scheme = /^\s*([A-Za-z]+)/.exec(text)?.[1]?.toLowerCase() ?? "";
  const parameters = new Map<string, string>();
  for (const match of text.matchAll(/([A-Za-z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/g)) {
    const value = match[2]?.replace(/\\(.)/g, "$1") ?? match[3] ?? "";
    if (match[1] !== undefined) parameters.set(match[1].toLowerCase(), value);
  }
  return { scheme, parameters };
}

function tokenOf(bytes: Buffer, endpoint: Endpoint): string {
  let token: unknown;
  try {
    const document = JSON.parse(bytes.toString("utf8")) as { token?: unknown; access_token?: unknown } | null;
    token = document?.token || document?.access_token;
  } catch {
    // Falls through to the same refusal.
  }
  if (typeof token !== "string" || !/^[\x21-\x7e]{1,65536}$/.test(token))
    throw new RegistryError("failed", `${endpoint.label} sent no token`);
  return `Bearer ${token}`;
}

function parseUrl(text: string | undefined): URL | undefined {
  const url = text === undefined ? null : URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && url.username === "" ? url : undefined;
}

function rangeStart(response: Response): number {
  const match = /^bytes (\d{1,15})-/.exec(response.headers.get("content-range") ?? "");
  return match === null ? 0 : Number(match[1]);
}

function isLoopback(host: string): boolean {
  const name = host.replace(/:\d+$/, "");
  return name === "localhost" || name === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(name);
}

function statusError(endpoint: Endpoint, status: number): RegistryError {
  if (status === 404) return new RegistryError("missing", `${endpoint.label} has no such image`);
  if (status === 401 || status === 403)
    return new RegistryError("refused", `${endpoint.label} refuses it: no such image there, or it needs credentials`);
  if (status === 429) return new RegistryError("failed", `${endpoint.label} answers that there were too many requests`);
  return new RegistryError("failed", `${endpoint.label} answered ${status}`);
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection lost",
  ENOTFOUND: "no such host",
  EAI_AGAIN: "its name cannot be resolved",
  UND_ERR_SOCKET: "connection lost",
  UND_ERR_CONNECT_TIMEOUT: "no connection in time",
};

/** What fetch threw, in words; it hides the reason in `cause`. */
function reachError(endpoint: Endpoint, error: unknown): RegistryError {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const code = (cause as { code?: unknown } | null)?.code;
  const known = typeof code === "string" ? (REASONS[code] ?? code) : undefined;
  const reason = known ?? (cause instanceof Error ? cause.message : "connection lost");
  return new RegistryError("failed", `${endpoint.label} cannot be reached: ${reason}`);
}

/** Throughput below which a transfer is an attack or a fault: 16 KiB/s, and a minute for everything small. */
export function transferDeadline(clock: Clock, bytes: number, parent: AbortSignal) {
  return deadlineSignal(clock, 60_000 + Math.ceil(bytes / 16), parent);
}
