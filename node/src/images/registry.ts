/**
 * A registry client: the two reads of the distribution protocol that a pull needs.
 *
 * Requests go to the mirror configured for the registry and, if that fails in any way, to the registry
 * itself. Only registries that the operator allows are contacted (contract/src/registries.ts), at permitted
 * addresses. Plain HTTP is used only for loopback, for registries configured as insecure and for mirrors
 * whose URL says so.
 *
 * Tokens come from the registry itself, from its known token server (TOKEN_SERVERS), or from a registry that
 * is allowed too; never over plain HTTP when the registry uses TLS. The operator's credentials go to the host
 * they were written for and to its token server, except to a token server that is allowed only by a pattern.
 * A token is sent only to the registry.
 *
 * The fleet's own registry is not contacted directly: requests go to the node's server.
 *
 * Content is not verified here; callers compare digests.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import type { Credentials } from "@flotilla/base/registry-credentials";
import { OWN_REGISTRY, type Reference } from "@flotilla/contract/reference";
import { authorityOf, mirrorBase, type RegistryRules, registryRefusal } from "@flotilla/contract/registries";
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
  /** Delay before the first retry; doubles with each. */
  readonly retryDelayMs: number;
}

export interface ManifestAnswer {
  readonly bytes: Buffer;
  readonly mediaType: string | null;
  readonly digest: string;
}

export interface BlobAnswer {
  /**
   * Where the body starts in the blob: the requested offset, or 0 when the registry does not support ranges.
   */
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

/** The token servers of well-known registries. */
const TOKEN_SERVERS: Readonly<Record<string, string>> = {
  "docker.io": "auth.docker.io",
  "registry.gitlab.com": "gitlab.com",
  "lscr.io": "ghcr.io",
};
/** The server that the node belongs to decides what it may read. */
const OWN_ENDPOINT: Endpoint = {
  base: `http://${OWN_REGISTRY}`,
  registry: OWN_REGISTRY,
  label: "the fleet's registry",
  allowedAddresses: "any",
  isOwn: true,
};
const MANIFEST_TRIES_MAX = 3;
const TOKEN_BYTES_MAX = 1024 * 1024;
const ACCEPT = Object.values(MANIFEST_TYPES).join(", ");

/** Lives as long as one pull; holds its tokens and connections. */
export class RegistryClient implements Disposable {
  readonly #options: RegistryOptions;
  readonly #transport: RegistryTransport;
  readonly #credentials: Credentials;
  /** Authorization headers that were accepted, by endpoint and repository. */
  readonly #authorizations = new Map<string, string>();

  constructor(options: RegistryOptions, credentials: Credentials) {
    this.#options = options;
    this.#credentials = credentials;
    this.#transport = new RegistryTransport(options);
  }

  [Symbol.dispose](): void {
    this.#transport[Symbol.dispose]();
  }

  /** Fetches a manifest or list by tag or digest; verifies a digest. Throws RegistryError. */
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

  /**
   * Fetches a blob from `offset` on, without retries and unverified. Throws RegistryError, also while it is
   * read.
   */
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
      throw registryFailure("failed", endpoint, "sent a manifest that does not match its digest");
    const mediaType = response.headers["content-type"]?.split(";")[0]?.trim() ?? null;
    return { bytes, mediaType, digest };
  }

  async #firstOf<T>(reference: Reference, request: (endpoint: Endpoint) => Promise<T>): Promise<T> {
    const failures: RegistryError[] = [];
    for (const endpoint of this.#endpointsOf(reference.registry)) {
      try {
        return await request(endpoint);
      } catch (error) {
        if (!(error instanceof RegistryError)) throw error;
        failures.push(error);
      }
    }
    // The first endpoint's failure decides: a mirror that is down may recover. A mirror that does not have
    // the image while the registry is unreachable will not change its answer, so a retry would only delay the
    // caller.
    const [first] = failures;
    if (first === undefined)
      throw new RegistryError("refused", registryRefusal(reference.registry), { fault: "image_not_allowed" });
    const detail = failures.map((failure) => failure.detail).join(", and ");
    throw new RegistryError(first.kind, first.message, { detail, fault: first.fault });
  }

  /** Empty when the registry is not allowed. */
  #endpointsOf(registry: string): readonly Endpoint[] {
    const { registries, rules } = this.#options;
    if (registry === OWN_REGISTRY) return [OWN_ENDPOINT];
    const permission = registries.grant(registry);
    if (permission === null) return [];
    const host = registry === "docker.io" ? "registry-1.docker.io" : registry;
    const scheme = isLoopback(host) || rules.insecure.includes(registry) ? "http" : "https";
    const allowedAddresses = permission === "listed" ? "any" : "public";
    const origin: Endpoint = { base: `${scheme}://${host}`, registry, label: `registry ${registry}`, allowedAddresses };
    const mirror = rules.mirrors.get(registry);
    if (mirror === undefined) return [origin];
    const base = mirrorBase(mirror);
    return [{ base, registry, label: `mirror ${base}`, allowedAddresses: "any" }, origin];
  }

  /** Returns a successful answer; authorizes if the server requires it. */
  async #request(endpoint: Endpoint, call: Call, stall: StallGuard): Promise<IncomingMessage> {
    const key = `${endpoint.base} ${call.repository}`;
    const url = new URL(`${endpoint.base}${call.path}`);
    for (let isRetry = false; ; isRetry = true) {
      const authorization = this.#authorizations.get(key);
      const headers = { ...call.headers, ...(authorization === undefined ? {} : { authorization }) };
      const answer = await this.#transport.get(endpoint, {
        url,
        allowedAddresses: endpoint.allowedAddresses,
        headers,
        stall,
        mayChangeServer: true,
      });
      const status = answer.statusCode ?? 0;
      if (status >= 200 && status < 300) return answer;
      answer.destroy();
      if (status === 401 && !isRetry && endpoint.isOwn !== true) {
        const challenges = parseChallenges(answer.headers["www-authenticate"] ?? "");
        const fresh = await this.#authorize(endpoint, challenges, call, stall);
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
    challenges: readonly Challenge[],
    call: Call,
    stall: StallGuard,
  ): Promise<string | undefined> {
    const basic = this.#credentials.basicFor(new URL(endpoint.base).host);
    const bearer = challenges.find(({ scheme }) => scheme === "bearer");
    if (bearer === undefined) return challenges.some(({ scheme }) => scheme === "basic") ? basic : undefined;
    const realm = parseUrl(bearer.parameters.get("realm"));
    if (realm === undefined) return undefined;
    const server = this.#tokenServer(endpoint, realm);
    if (typeof server === "string") {
      stall.end();
      throw registryFailure("refused", endpoint, server);
    }
    const service = bearer.parameters.get("service");
    if (service !== undefined) realm.searchParams.set("service", service);
    realm.searchParams.set("scope", `repository:${call.repository}:pull`);
    const headers = server.mayHaveCredentials && basic !== undefined ? { authorization: basic } : {};
    const { allowedAddresses } = server.endpoint;
    const answer = await this.#transport.get(server.endpoint, {
      url: realm,
      allowedAddresses,
      headers,
      stall,
      mayChangeServer: false,
    });
    const status = answer.statusCode ?? 0;
    if (status < 200 || status > 299) {
      answer.destroy();
      stall.end();
      throw statusError(server.endpoint, status);
    }
    const bytes = await readAll(answer, server.endpoint, stall, TOKEN_BYTES_MAX, { isLast: false });
    return tokenOf(bytes, server.endpoint);
  }

  /** The token server for the endpoint, or the reason to refuse the one it names. */
  #tokenServer(endpoint: Endpoint, realm: URL): TokenServer | string {
    const base = new URL(endpoint.base);
    if (base.protocol === "https:" && realm.protocol !== "https:") return "names a token server without TLS";
    const named: Endpoint = { ...endpoint, base: realm.origin, label: `the token server of ${endpoint.label}` };
    const isOwn = authorityOf(realm) === authorityOf(base) || realm.host === TOKEN_SERVERS[endpoint.registry];
    if (isOwn) return { endpoint: named, mayHaveCredentials: true };
    const permission = this.#options.registries.grant(authorityOf(realm));
    if (permission === null) return `names the token server ${realm.origin}, which is not allowed`;
    const isListed = permission === "listed";
    const allowedAddresses = isListed && endpoint.allowedAddresses === "any" ? "any" : "public";
    return { endpoint: { ...named, allowedAddresses }, mayHaveCredentials: isListed };
  }
}

interface Challenge {
  readonly scheme: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/** The challenges of WWW-Authenticate headers: each a scheme, and parameters up to the next one. */
function parseChallenges(header: string): readonly Challenge[] {
  const challenges: { readonly scheme: string; readonly parameters: Map<string, string> }[] = [];
  const found = header.slice(0, 8192).matchAll(/([A-Za-z0-9_-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?/g);
  for (const [, name = "", quoted, plain] of found) {
    const value = quoted?.replace(/\\(.)/g, "$1") ?? plain;
    if (value === undefined) challenges.push({ scheme: name.toLowerCase(), parameters: new Map() });
    else challenges.at(-1)?.parameters.set(name.toLowerCase(), value);
  }
  return challenges;
}

function tokenOf(bytes: Buffer, endpoint: Endpoint): string {
  let token: unknown;
  try {
    const document = JSON.parse(bytes.toString("utf8")) as { token?: unknown; access_token?: unknown } | null;
    token = document?.token || document?.access_token;
  } catch {
    // Handled by the same refusal below.
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

/** Loopback uses plain HTTP. `host` is as in a URL, with its port. */
function isLoopback(host: string): boolean {
  const name = host.replace(/:\d+$/, "");
  return name === "localhost" || name === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(name);
}

/** The deadline of a transfer at 16 KiB/s plus a minute; anything slower is an attack or a fault. */
export function transferDeadline(clock: Clock, bytes: number, parent: AbortSignal) {
  return deadlineSignal(clock, 60_000 + Math.ceil(bytes / 16), parent);
}
