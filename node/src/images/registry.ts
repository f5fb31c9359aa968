/**
 * Speaks to registries: the two reads of the distribution protocol that a pull needs.
 *
 * Which server is asked: the mirror configured for the registry, then, if that fails in any way, the registry itself.
 * Only registries that the operator allows are (contract/src/registries.ts), at addresses that fit; plain HTTP only for
 * loopback, for registries configured as insecure and for mirrors whose URL says so.
 *
 * Tokens come from the registry itself, from a token server that is known to be its own (COMPANIONS), or from a registry
 * that is allowed too; never over plain HTTP when the registry speaks TLS. The operator's credentials go to the host they
 * were written for and to such a token server, except to one that is allowed only by a pattern. A token goes to nobody
 * but the registry.
 *
 * What arrives is not trusted here; callers compare digests.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import type { Reference } from "@flotilla/contract/reference";
import { authorityOf, mirrorBase, type RegistryRules, registryRefusal } from "@flotilla/contract/registries";
import type { Credentials } from "./credentials.ts";
import { MANIFEST_BYTES_MAX, MANIFEST_TYPES } from "./manifest.ts";
import {
  type Endpoint,
  RegistryError,
  RegistryTransport,
  readAll,
  readBody,
  registryFailure,
  StallGuard,
  statusError,
  type TransportOptions,
} from "./registry-transport.ts";

export interface RegistryOptions extends TransportOptions {
  readonly rules: RegistryRules;
  /** Before the first retry; doubles with each. */
  readonly retryDelayMs: number;
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

interface Call {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly repository: string;
  readonly signal: AbortSignal;
}

interface TokenServer {
  readonly endpoint: Endpoint;
  readonly mayHaveCredentials: boolean;
}

/** Where well-known registries have their tokens made. */
const COMPANIONS: Readonly<Record<string, string>> = {
  "docker.io": "auth.docker.io",
  "registry.gitlab.com": "gitlab.com",
  "lscr.io": "ghcr.io",
};
const MANIFEST_TRIES_MAX = 3;
const TOKEN_BYTES_MAX = 1024 * 1024;
const ACCEPT = Object.values(MANIFEST_TYPES).join(", ");

/** Lives as long as one pull, and holds its tokens and connections. */
export class RegistryClient implements Disposable {
  readonly #options: RegistryOptions;
  readonly #transport: RegistryTransport;
  readonly #credentials: Credentials;
  /** Authorization headers that worked, by endpoint and repository. */
  readonly #authorizations = new Map<string, string>();

  constructor(options: RegistryOptions, credentials: Credentials) {
    this.#options = options;
    this.#credentials = credentials;
    this.#transport = new RegistryTransport(options);
  }

  [Symbol.dispose](): void {
    this.#transport[Symbol.dispose]();
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
      const start = response.statusCode === 206 ? rangeStart(response) : 0;
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
      throw registryFailure("failed", endpoint, "sent a manifest with another digest");
    const mediaType = response.headers["content-type"]?.split(";")[0]?.trim() ?? null;
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
    const [first] = failures;
    if (first === undefined)
      throw new RegistryError("refused", registryRefusal(reference.registry), { fault: "image_not_allowed" });
    const detail = failures.map((failure) => failure.detail).join(", and ");
    throw new RegistryError(first.kind, first.message, { detail, fault: first.fault });
  }

  /** None when the registry is not allowed. */
  #endpointsOf(registry: string): readonly Endpoint[] {
    const { registries, rules } = this.#options;
    const right = registries.right(registry);
    if (right === null) return [];
    const host = registry === "docker.io" ? "registry-1.docker.io" : registry;
    const scheme = isLoopback(host) || rules.insecure.includes(registry) ? "http" : "https";
    const reach = right === "listed" ? "any" : "public";
    const origin: Endpoint = { base: `${scheme}://${host}`, registry, label: `registry ${registry}`, reach };
    const mirror = rules.mirrors.get(registry);
    if (mirror === undefined) return [origin];
    const base = mirrorBase(mirror);
    return [{ base, registry, label: `mirror ${base}`, reach: "any" }, origin];
  }

  /** An answer that is not an error, with authorization if the server wants one. */
  async #request(endpoint: Endpoint, call: Call, stall: StallGuard): Promise<IncomingMessage> {
    const key = `${endpoint.base} ${call.repository}`;
    const url = new URL(`${endpoint.base}${call.path}`);
    for (let isRetry = false; ; isRetry = true) {
      const authorization = this.#authorizations.get(key);
      const headers = { ...call.headers, ...(authorization === undefined ? {} : { authorization }) };
      const answer = await this.#transport.get(endpoint, {
        url,
        reach: endpoint.reach,
        headers,
        stall,
        mayLeave: true,
      });
      const status = answer.statusCode ?? 0;
      if (status >= 200 && status < 300) return answer;
      answer.destroy();
      if (status === 401 && !isRetry) {
        const challenge = parseChallenge(answer.headers["www-authenticate"] ?? "");
        const fresh = await this.#authorize(endpoint, challenge, call, stall);
        if (fresh !== undefined) {
          this.#authorizations.set(key, fresh);
          continue;
        }
      }
      stall.end();
      throw statusError(endpoint, status);
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
    const server = this.#tokenServer(endpoint, realm);
    if (typeof server === "string") {
      stall.end();
      throw registryFailure("refused", endpoint, server);
    }
    const service = challenge.parameters.get("service");
    if (service !== undefined) realm.searchParams.set("service", service);
    realm.searchParams.set("scope", `repository:${call.repository}:pull`);
    const headers = server.mayHaveCredentials && basic !== undefined ? { authorization: basic } : {};
    const { reach } = server.endpoint;
    const answer = await this.#transport.get(server.endpoint, { url: realm, reach, headers, stall, mayLeave: false });
    const status = answer.statusCode ?? 0;
    if (status < 200 || status > 299) {
      answer.destroy();
      stall.end();
      throw statusError(server.endpoint, status);
    }
    const bytes = await readAll(answer, server.endpoint, stall, TOKEN_BYTES_MAX, { isLast: false });
    return tokenOf(bytes, server.endpoint);
  }

  /** Who makes tokens for the endpoint, or why the one it names is not asked. */
  #tokenServer(endpoint: Endpoint, realm: URL): TokenServer | string {
    const base = new URL(endpoint.base);
    if (base.protocol === "https:" && realm.protocol !== "https:") return "names a token server without TLS";
    const named: Endpoint = { ...endpoint, base: realm.origin, label: `the token server of ${endpoint.label}` };
    const isOwn = authorityOf(realm) === authorityOf(base) || realm.host === COMPANIONS[endpoint.registry];
    if (isOwn) return { endpoint: named, mayHaveCredentials: true };
    const right = this.#options.registries.right(authorityOf(realm));
    if (right === null) return `names the token server ${realm.origin}, which is not allowed`;
    const isListed = right === "listed" && endpoint.reach === "any";
    return { endpoint: { ...named, reach: isListed ? "any" : "public" }, mayHaveCredentials: right === "listed" };
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
    throw registryFailure("failed", endpoint, "sent no token");
  return `Bearer ${token}`;
}

function parseUrl(text: string | undefined): URL | undefined {
  const url = text === undefined ? null : URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && url.username === "" ? url : undefined;
}

function rangeStart(response: IncomingMessage): number {
  const match = /^bytes (\d{1,15})-/.exec(response.headers["content-range"] ?? "");
  return match === null ? 0 : Number(match[1]);
}

/** Speaks plain HTTP unless a mirror's URL says otherwise. `host` as in a URL, with port. */
function isLoopback(host: string): boolean {
  const name = host.replace(/:\d+$/, "");
  return name === "localhost" || name === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(name);
}

/** Throughput below which a transfer is an attack or a fault: 16 KiB/s, and a minute for everything small. */
export function transferDeadline(clock: Clock, bytes: number, parent: AbortSignal) {
  return deadlineSignal(clock, 60_000 + Math.ceil(bytes / 16), parent);
}
