/**
 * The client of Flotilla's API, for browsers and for Node: `new Flotilla({ url, apiKey })`, then one method for each
 * endpoint (generated.ts), named like the endpoint.
 *
 * Always: only `fetch` and other standard web interfaces are used; nothing outside this folder is imported at run time;
 * a refusal and a call without an answer are both a FlotillaError; only GET and HEAD are tried again, because they
 * alone change nothing, and only on answers that say "not now" (429, 502, 503, 504).
 *
 * A start or a command may take long. `Prefer: processing` asks the server for signs of life meanwhile, because Node's own
 * fetch gives up on an answer of which nothing has come for 300 s.
 */
import { type ApiCall, type CallOptions, segment } from "./call.ts";
import { after, now, pause } from "./clock.ts";
import { errorOfAnswer, FlotillaError } from "./errors.ts";
import { type ConnectToken, type ExecQuery, type MachineCommandRequest, Methods } from "./generated.ts";

export type { BytesBody, CallOptions } from "./call.ts";
export {
  type ExecEvent,
  type LogRecord,
  readEvents,
  readExecEvents,
  readLogRecords,
  type StreamEvent,
} from "./events.ts";
export { FlotillaError, type NoAnswerCode } from "./errors.ts";
export type * from "./generated.ts";

export interface FlotillaOptions {
  /** Where the server is: `http://127.0.0.1:8080`. */
  url: string;
  /** Sent as a bearer token. Without one only the public endpoints answer. */
  apiKey?: string | undefined;
  /** How often a GET is tried again; default 3. */
  retries?: number | undefined;
  /** For calls that name no time of their own; default: none. */
  timeoutMs?: number | undefined;
  /** Used in place of the global `fetch`. */
  fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;
}

const RETRIED_STATUSES: readonly number[] = [429, 502, 503, 504];
const RETRIES_DEFAULT = 3;
const RETRY_PAUSE_FIRST_MS = 200;
/** A server that asks for a longer pause gets none: the caller hears of it instead of waiting unawares. */
const RETRY_PAUSE_MAX_MS = 10_000;

/** Of a connect token: how long it is good, and how long it must still be to be sent. */
const TOKEN_SECONDS = 600;
const TOKEN_LEFT_MS_MIN = 60_000;
const TOKENS_MAX = 1_000;

type AnyOptions = CallOptions<unknown>;

export class Flotilla extends Methods {
  readonly url: string;
  readonly #apiKey: string | undefined;
  readonly #retries: number;
  readonly #timeoutMs: number | undefined;
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>;
  /** By machine: what reaches its ports in place of the key. */
  readonly #connectTokens = new Map<string, Promise<ConnectToken>>();

  constructor(options: FlotillaOptions) {
    super();
    if (!/^https?:\/\/[^/]/.test(options.url))
      throw new TypeError(`"${options.url}" is no http:// or https:// address`);
    this.url = options.url.replace(/\/+$/, "");
    this.#apiKey = options.apiKey;
    this.#retries = options.retries ?? RETRIES_DEFAULT;
    this.#timeoutMs = options.timeoutMs;
    this.#fetch = options.fetch ?? ((url, init) => fetch(url, init));
  }

  /** Where the connect bridge to a machine is, or to one of its published ports; without a slash at the end. */
  endpoint(machineId: string, port?: number): string {
    const bridge = `${this.url}/v1/machines/${segment(machineId)}/connect`;
    return port === undefined ? bridge : `${bridge}/${segment(port)}`;
  }

  /**
   * `fetch` from a published port of a machine: `path` and `init` are the guest's, and so is the answer, whatever its
   * status. The client's key stays here: a connect token of the machine is made with it and goes along, unless `init` has an
   * `Authorization` of its own. Throws a FlotillaError when no token can be made, such as for a machine that is not there.
   */
  fetchFrom(machineId: string, port: number, path: string, init: RequestInit = {}): Promise<Response> {
    const url = `${this.endpoint(machineId, port)}${path.startsWith("/") ? "" : "/"}${path}`;
    if (!new URL(url).href.startsWith(`${this.endpoint(machineId, port)}/`))
      throw new TypeError(`"${path}" leads out of the machine`);
    return this.#fetchWithToken(machineId, url, init);
  }

  async #fetchWithToken(machineId: string, url: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    if (headers.has("authorization")) return this.#fetch(url, { ...init, headers });
    const token = await this.#connectToken(machineId);
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    const answer = await this.#fetch(url, { ...init, headers });
    // The next call makes another one.
    if (answer.headers.get("x-error-code") === "unknown_key") this.#connectTokens.delete(machineId);
    return answer;
  }

  /** A WebSocket with what listens at a published port of a machine; it carries a connect token, as in `fetchFrom`. */
  async openSocketTo(machineId: string, port: number, path: string): Promise<WebSocket> {
    const token = await this.#connectToken(machineId);
    const tail = path.replace(/^\//, "");
    return this.#openSocketWith(token, `/v1/machines/${segment(machineId)}/connect/${segment(port)}/${tail}`, {});
  }

  /** One for all calls, until shortly before it expires. undefined: there is no key to make it with. */
  async #connectToken(machineId: string): Promise<string | undefined> {
    if (this.#apiKey === undefined) return undefined;
    const known = await this.#connectTokens.get(machineId)?.catch(() => undefined);
    if (known !== undefined && Date.parse(known.expiresAt) - now() > TOKEN_LEFT_MS_MIN) return known.token;
    if (this.#connectTokens.size >= TOKENS_MAX) this.#connectTokens.clear();
    const making = this.createConnectToken(machineId, { ttlSeconds: TOKEN_SECONDS });
    this.#connectTokens.set(machineId, making);
    making.catch(() => this.#connectTokens.delete(machineId));
    return (await making).token;
  }

  /** `execInSession` with the output as it comes, for readExecEvents. */
  execStreamInSession(
    machineId: string,
    sessionId: string,
    body: MachineCommandRequest,
    options: CallOptions<ExecQuery> = {},
  ): Promise<Response> {
    const path = `/v1/machines/${segment(machineId)}/sessions/${segment(sessionId)}/exec`;
    return this.call({ method: "POST", path, json: { ...body, stream: true }, answer: "stream" }, options);
  }

  protected override async call<T>(call: ApiCall, options: AnyOptions): Promise<T> {
    const name = `${call.method} ${call.path}`;
    const timeout = new AbortController();
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    const stopTimer = timeoutMs === undefined ? () => {} : after(timeoutMs, () => timeout.abort());
    const signal = options.signal === undefined ? timeout.signal : AbortSignal.any([timeout.signal, options.signal]);
    try {
      const answer = await this.#answer(call, options, signal);
      if (!answer.ok) throw await errorOfAnswer(answer, name);
      return (await readAnswer(call, answer)) as T;
    } catch (error) {
      if (error instanceof FlotillaError) throw error;
      throw noAnswer(error, { name, url: this.url, timedOut: timeout.signal.aborted, isAborted: signal.aborted });
    } finally {
      stopTimer();
    }
  }

  /** Sends the call, again after a pause while the server says "not now" and the call may be repeated. */
  async #answer(call: ApiCall, options: AnyOptions, signal: AbortSignal): Promise<Response> {
    const isRepeatable = call.method === "GET" || call.method === "HEAD";
    for (let tries = 0; ; tries++) {
      const answer = await this.#fetch(this.#address(call.path, options.query), this.#init(call, options, signal));
      if (!isRepeatable || tries >= this.#retries || !RETRIED_STATUSES.includes(answer.status)) return answer;
      const pauseMs = retryAfterMs(answer) ?? RETRY_PAUSE_FIRST_MS * 2 ** tries;
      if (pauseMs > RETRY_PAUSE_MAX_MS) return answer;
      await answer.body?.cancel();
      await pause(pauseMs, signal);
      signal.throwIfAborted();
    }
  }

  #address(path: string, query: unknown): string {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query ?? {})) {
      for (const item of Array.isArray(value) ? value : [value]) {
        if (item !== undefined && item !== null) parameters.append(name, String(item));
      }
    }
    const separator = path.includes("?") ? "&" : "?";
    return parameters.size === 0 ? this.url + path : `${this.url}${path}${separator}${parameters.toString()}`;
  }

  #init(call: ApiCall, options: AnyOptions, signal: AbortSignal): RequestInit {
    const headers = new Headers(options.headers);
    if (this.#apiKey !== undefined) headers.set("authorization", `Bearer ${this.#apiKey}`);
    if (options.idempotencyKey !== undefined) headers.set("idempotency-key", options.idempotencyKey);
    if (call.method === "POST" && !headers.has("prefer")) headers.set("prefer", "processing");
    const init: RequestInit = { method: call.method, headers, signal };
    if (call.json !== undefined) {
      headers.set("content-type", "application/json");
      init.body = JSON.stringify(call.json);
    } else if (call.bytes !== undefined) {
      headers.set("content-type", "application/octet-stream");
      init.body = call.bytes as NonNullable<RequestInit["body"]>;
      // The standard asks for this word wherever a body is a stream; its absence is an error in Node and in Chromium.
      if (call.bytes instanceof ReadableStream) Object.assign(init, { duplex: "half" });
    }
    return init;
  }

  /** In Node the key travels in a header; a browser's WebSocket has none, so there it goes into the query. */
  protected override openSocket(path: string, options: AnyOptions): WebSocket {
    return this.#openSocketWith(this.#apiKey, path, options);
  }

  #openSocketWith(key: string | undefined, path: string, options: AnyOptions): WebSocket {
    const isBrowser = "document" in globalThis;
    const query = { ...(options.query as object | undefined), ...(isBrowser && key ? { access_token: key } : {}) };
    const address = this.#address(path, query).replace(/^http/, "ws");
    if (isBrowser) return new WebSocket(address);
    const headers = { ...options.headers, ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) };
    // In Node the second parameter may hold request headers; the standard knows only subprotocols there.
    return new WebSocket(address, { headers });
  }
}

async function readAnswer(call: ApiCall, answer: Response): Promise<unknown> {
  if (call.answer === "stream") return answer;
  if (call.answer === "json") {
    const text = await answer.text();
    return text === "" ? undefined : JSON.parse(text);
  }
  await answer.body?.cancel();
  return undefined;
}

/** `Retry-After` in either of its forms, in milliseconds from now; undefined when there is none that makes sense. */
function retryAfterMs(answer: Response): number | undefined {
  const value = answer.headers.get("retry-after");
  if (value === null) return undefined;
  const seconds = Number(value);
  if (value.trim() !== "" && Number.isFinite(seconds) && seconds >= 0) return seconds * 1000;
  // The server's own clock is what the date is measured against, so a caller's wrong clock does no harm.
  const waitMs = Date.parse(value) - Date.parse(answer.headers.get("date") ?? "");
  return Number.isFinite(waitMs) ? Math.max(0, waitMs) : undefined;
}

function noAnswer(
  error: unknown,
  facts: { name: string; url: string; timedOut: boolean; isAborted: boolean },
): FlotillaError {
  const [code, text] = facts.timedOut
    ? ["timeout", `${facts.url} did not answer ${facts.name} in time`]
    : facts.isAborted
      ? ["aborted", `${facts.name} was given up by its caller`]
      : ["unreachable", `${facts.url} gave no usable answer to ${facts.name}: ${reason(error)}`];
  return new FlotillaError({ status: 0, code, text, requestId: null, call: facts.name }, { cause: error });
}

/** The innermost cause says what happened: fetch itself only says "fetch failed". */
function reason(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof AggregateError && cause.errors.length > 0) return reason(cause.errors[0]);
  if (cause instanceof Error) return reason(cause);
  return error instanceof Error ? error.message : String(error);
}
