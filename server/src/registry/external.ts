/**
 * Another registry as the storage of packages: one that an operator has named, with credentials in a file.
 *
 * Always:
 * - Its address and its token server are the operator's choice; credentials go to its host, and to the token
 *   server that it names.
 * - A token is got before a body is sent, because a body can be sent once only.
 * - The file is read whenever a token is needed, so a new password works without a restart.
 * - A redirect is followed for reads only, without the credential.
 */
import { open } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { type Credentials, parseCredentials } from "@flotilla/base/registry-credentials";
import { Agent } from "undici";
import {
  type Backend,
  type BackendAnswer,
  type BackendRequest,
  BackendUnavailable,
  discard,
  readAll,
  sendOver,
} from "./backend.ts";
import { challengeFrom, tokenFrom } from "./challenge.ts";

const CONNECTIONS_MAX = 128;
const CONNECT_MS = 10_000;
const FILE_BYTES_MAX = 1024 * 1024;
const TOKEN_BYTES_MAX = 64 * 1024;
const REDIRECTS_MAX = 3;
/** Before its end, so that a request in progress is not refused. */
const TOKEN_SPARE_MS = 10_000;
const TOKENS_MAX = 1_000;

export interface ExternalOptions {
  /** Its address with the prefix of all repositories: `https://registry.example.com/flotilla`. */
  readonly base: string;
  /** In the form of docker's config.json; null: it needs none. */
  readonly credentials: string | null;
  readonly clock: Clock;
  readonly log: Log;
}

interface Authorization {
  /** undefined: none is needed. */
  readonly header: string | undefined;
  /** By the monotonic clock. */
  readonly expiresAt: number;
}

export class ExternalRegistry implements Backend {
  readonly fault = null;
  readonly collect = null;
  readonly #options: ExternalOptions;
  readonly #base: URL;
  readonly #agent = new Agent({ connections: CONNECTIONS_MAX, connect: { timeout: CONNECT_MS } });
  /** By scope. */
  readonly #authorizations = new Map<string, Authorization>();

  constructor(options: ExternalOptions) {
    this.#options = options;
    this.#base = new URL(options.base);
  }

  urlOf(repository: string, path: string): URL {
    return new URL(`/v2/${this.#name(repository)}/${path}`, this.#base);
  }

  mountUrl(repository: string, { digest, from }: { readonly digest: string; readonly from: string }): URL {
    const query = new URLSearchParams({ mount: digest, from: this.#name(from) });
    return this.urlOf(repository, `blobs/uploads/?${query}`);
  }

  /** It has its own limits. */
  freeBytes(): Promise<null> {
    return Promise.resolve(null);
  }

  async send(request: BackendRequest): Promise<BackendAnswer> {
    const answer = await this.#sendOnce(request);
    if (answer.status !== 401 || (request.body !== undefined && !Buffer.isBuffer(request.body))) return answer;
    // The token ended early, or the password is new.
    await discard(answer);
    this.#authorizations.delete(this.#scopeOf(request));
    return await this.#sendOnce(request);
  }

  async stop(): Promise<void> {
    await this.#agent.destroy();
  }

  /** As the registry names it: below the prefix. */
  #name(repository: string): string {
    const prefix = this.#base.pathname.replace(/^\/|\/$/g, "");
    return prefix === "" ? repository : `${prefix}/${repository}`;
  }

  async #sendOnce(request: BackendRequest): Promise<BackendAnswer> {
    // An upload may continue at another host, which has its own secrets in the address.
    const isHere = request.url.origin === this.#base.origin;
    const header = isHere ? await this.#authorizationFor(request) : undefined;
    const headers = { ...request.headers, ...(header === undefined ? {} : { authorization: header }) };
    const answer = await sendOver(this.#agent, { ...request, headers });
    return request.method === "GET" || request.method === "HEAD" ? await this.#follow(request, answer) : answer;
  }

  async #follow(request: BackendRequest, first: BackendAnswer): Promise<BackendAnswer> {
    let [answer, url] = [first, request.url];
    for (let hops = 0; hops < REDIRECTS_MAX && [301, 302, 303, 307, 308].includes(answer.status); hops += 1) {
      const { location = "" } = answer.headers;
      await discard(answer);
      if (!URL.canParse(location, url.href)) throw new BackendUnavailable(new Error("it redirects to no address"));
      const next = new URL(location, url);
      if (next.protocol !== "https:" && next.protocol !== url.protocol)
        throw new BackendUnavailable(new Error("it redirects from https to another protocol"));
      url = next;
      answer = await sendOver(this.#agent, { ...request, url });
    }
    return answer;
  }

  #scopeOf({ repository, isWrite, from }: BackendRequest): string {
    const own = `repository:${this.#name(repository)}:${isWrite ? "pull,push,delete" : "pull"}`;
    return from === undefined ? own : `${own} repository:${this.#name(from)}:pull`;
  }

  async #authorizationFor(request: BackendRequest): Promise<string | undefined> {
    const scope = this.#scopeOf(request);
    const now = this.#options.clock.monotonic();
    const known = this.#authorizations.get(scope);
    if (known !== undefined && known.expiresAt > now) return known.header;
    const found = await this.#authorize(scope, now);
    if (this.#authorizations.size >= TOKENS_MAX) this.#authorizations.clear();
    this.#authorizations.set(scope, found);
    return found.header;
  }

  /** Asks what the registry wants, and gets that. */
  async #authorize(scope: string, now: number): Promise<Authorization> {
    const url = new URL("/v2/", this.#base);
    const asked = await this.#get(url, undefined);
    const forever = { expiresAt: Number.POSITIVE_INFINITY };
    if (asked.status !== 401) return { header: undefined, ...forever };
    const basic = (await this.#credentials()).basicFor(this.#base.host);
    const challenge = challengeFrom(asked.headers["www-authenticate"], url);
    if (challenge === null) throw new BackendUnavailable(new Error("it asks for a credential in no known form"));
    if (challenge.kind === "basic") return { header: basic, ...forever };
    const { realm, service } = challenge;
    if (service !== null) realm.searchParams.set("service", service);
    for (const each of scope.split(" ")) realm.searchParams.append("scope", each);
    const answer = await this.#get(realm, basic);
    const got = answer.status === 200 ? tokenFrom(answer.text) : null;
    if (got === null) throw new BackendUnavailable(new Error(`its token server answers with status ${answer.status}`));
    return { header: `Bearer ${got.token}`, expiresAt: now + got.seconds * 1_000 - TOKEN_SPARE_MS };
  }

  async #get(url: URL, authorization: string | undefined) {
    const headers = authorization === undefined ? {} : { authorization };
    const answer = await sendOver(this.#agent, { method: "GET", url, repository: "", isWrite: false, headers });
    const text = (await readAll(answer, TOKEN_BYTES_MAX)).toString("utf8");
    return { status: answer.status, headers: answer.headers, text };
  }

  async #credentials(): Promise<Credentials> {
    const { credentials: path, log } = this.#options;
    if (path === null) return { basicFor: () => undefined };
    try {
      await using file = await open(path, "r");
      const { mode, size } = await file.stat();
      if ((mode & 0o077) !== 0) log.warn({ path }, "other users of this host can read the registry credentials");
      if (size > FILE_BYTES_MAX) throw new Error("the file is larger than 1 MiB");
      return parseCredentials(await file.readFile("utf8"));
    } catch (error) {
      // The parser's message would quote the file.
      const reason = (error as NodeJS.ErrnoException).code ?? "it is not in the format of docker's config.json";
      log.error({ path, reason }, "the registry credentials cannot be read");
      throw new BackendUnavailable(new Error("its credentials cannot be read"));
    }
  }
}
