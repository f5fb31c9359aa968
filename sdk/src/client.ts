/**
 * The client of Flotilla's API, for browsers and for Node: `new Flotilla({ url, apiKey })`, then one method
 * for each endpoint (generated.ts), with the endpoint's name.
 *
 * Always:
 * - It uses only `fetch`, or what it is given instead, and other standard web interfaces, and imports nothing
 *   outside this folder at run time.
 * - A refusal and a call without an answer are both a FlotillaError.
 * - GET and HEAD are retried, because they change nothing, and only on answers that say "not now" (429, 502,
 *   503, 504) within SLOW_MS. What took longer to be refused would take as long again: a guest that hangs is
 *   given minutes.
 * - A POST is retried only with an idempotency key, which makes it happen once; then also when its answer was
 *   lost, and while the first one still runs. A stream is never sent or asked for again.
 *
 * A start or a command may take long. `Prefer: processing` asks the server for signs of life meanwhile,
 * because Node's own fetch fails when nothing of an answer arrives for 300 s.
 */
import { type ApiCall, type CallOptions, segment } from "./call.ts";
import { after, now, pause } from "./clock.ts";
import { errorOfAnswer, FlotillaError } from "./errors.ts";
import { type ExecEvent, readExecEvents, readTenantEvents } from "./events.ts";
import { EXEC_FRAMES_TYPE } from "./exec-frames.ts";
import {
  type ConnectToken,
  type ExecQuery,
  type FollowedChange,
  type ListEventsQuery,
  type MachineCommandRequest,
  Methods,
  type OpenTerminalQuery,
  type TenantEvent,
} from "./generated.ts";
import { KeptTerminal, terminalId, type TerminalState } from "./terminal.ts";

export type { BytesBody, CallOptions } from "./call.ts";
export {
  type ExecEvent,
  type LogMark,
  type LogRecord,
  readEvents,
  readExecEvents,
  readLogMessages,
  readLogRecords,
  type StreamEvent,
} from "./events.ts";
export type { ErrorCode } from "./advice.ts";
export { type FailureCode, FlotillaError, type NoAnswerCode } from "./errors.ts";
export { type Owned, ownedApp, ownedBranch, ownedMachine } from "./owned.ts";
export { items } from "./pages.ts";
export { KeptTerminal, type TerminalEnd, type TerminalSize, type TerminalState } from "./terminal.ts";
export type * from "./generated.ts";

export interface KeepTerminalOptions extends CallOptions<Omit<OpenTerminalQuery, "terminal" | "offset">> {
  /** The id of a terminal that runs, to continue it from `offset` on. Absent: one is begun. */
  readonly terminal?: string | undefined;
  /** How much of its output is known already. What is not kept any more is left out. */
  readonly offset?: number | undefined;
  /** Called with each change of its connection. */
  readonly onState?: ((state: TerminalState) => void) | undefined;
}

export type ViewTerminalOptions = Pick<KeepTerminalOptions, "headers" | "offset" | "onState" | "signal">;

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface FlotillaOptions {
  /** The server's address: `http://127.0.0.1:8080`. */
  url: string;
  /**
   * Sent as a bearer token. Without one, only the public endpoints answer. The constructor throws a TypeError
   * for one that cannot be sent.
   */
  apiKey?: string | undefined;
  /** How often a GET, or a POST with an idempotency key, is retried that was refused within 10 s; default 3. */
  retries?: number | undefined;
  /** Timeout of calls without their own; default: none. */
  timeoutMs?: number | undefined;
  /** Used instead of the global `fetch`. */
  fetch?: Fetch | undefined;
}

const PROBLEM = "application/problem+json";

const RETRIED_STATUSES: readonly number[] = [429, 502, 503, 504];
const RETRIES_DEFAULT = 3;
const RETRY_PAUSE_FIRST_MS = 200;
/** A longer pause is not waited for: the caller gets the refusal instead of an unexpected delay. */
const RETRY_PAUSE_MAX_MS = 10_000;
/** A refusal that took longer is not retried. */
const SLOW_MS = 10_000;

/** How long a connect token is valid, and the validity it must have left to be sent. */
const TOKEN_SECONDS = 600;
const TOKEN_LEFT_MS_MIN = 60_000;
const TOKENS_MAX = 1_000;

type AnyOptions = CallOptions<unknown>;

export class Flotilla extends Methods {
  readonly url: string;
  readonly #apiKey: string | undefined;
  readonly #retries: number;
  readonly #timeoutMs: number | undefined;
  readonly #fetch: Fetch;
  /** By machine id: tokens that open its ports, sent instead of the key. */
  readonly #connectTokens = new Map<string, Promise<ConnectToken>>();

  constructor(options: FlotillaOptions) {
    super();
    if (!/^https?:\/\/[^/]/.test(options.url))
      throw new TypeError(`"${options.url}" is not an http:// or https:// address`);
    this.url = options.url.replace(/\/+$/, "");
    requireHeaderText(options.apiKey ?? "");
    this.#apiKey = options.apiKey;
    this.#retries = options.retries ?? RETRIES_DEFAULT;
    this.#timeoutMs = options.timeoutMs;
    this.#fetch = options.fetch ?? ((url, init) => fetch(url, init));
  }

  /**
   * The address of the connect bridge to a machine, or to one of its published ports; without a slash at the
   * end.
   */
  endpoint(machineId: string, port?: number): string {
    const bridge = `${this.url}/v1/machines/${segment(machineId)}/connect`;
    return port === undefined ? bridge : `${bridge}/${segment(port)}`;
  }

  /**
   * `fetch` from a published port of a machine. `path` and `init` are for the guest, and the answer is the
   * guest's, whatever its status. The client's key is not sent to the guest: it is used to make a connect
   * token of the machine, which is sent unless `init` has its own `Authorization`. Throws a FlotillaError
   * when no token can be made, for instance because the machine does not exist.
   */
  fetchFrom(machineId: string, port: number, path: string, init: RequestInit = {}): Promise<Response> {
    return this.#fetchWithToken(machineId, this.#addressIn(machineId, port, path), init);
  }

  /** Address of a path of the guest, with or without a slash at its beginning. */
  #addressIn(machineId: string, port: number, path: string): string {
    const url = `${this.endpoint(machineId, port)}${path.startsWith("/") ? "" : "/"}${path}`;
    // Both are normalized: the client's address may be in capitals, or name its scheme's port.
    if (!new URL(url).href.startsWith(new URL(`${this.endpoint(machineId, port)}/`).href))
      throw new TypeError(`"${path}" leads out of the machine`);
    return url;
  }

  async #fetchWithToken(machineId: string, url: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    if (headers.has("authorization")) return this.#fetch(url, { ...init, headers });
    const token = await this.#connectToken(machineId);
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    const answer = await this.#fetch(url, { ...init, headers });
    // The next call makes a new one.
    if (answer.headers.get("x-error-code") === "unknown_key") this.#connectTokens.delete(machineId);
    return answer;
  }

  /** A WebSocket to a published port of a machine, with a connect token as in `fetchFrom`. */
  async openSocketTo(machineId: string, port: number, path: string): Promise<WebSocket> {
    const address = this.#addressIn(machineId, port, path);
    const token = await this.#connectToken(machineId);
    return this.#openSocketWith(token, address.slice(this.url.length), {});
  }

  /** One token for all calls, until shortly before it expires. undefined: there is no key to make it with. */
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

  /**
   * Runs a command, and resolves when its output begins: bytes as the command writes them, then its exit
   * code. Ending the iteration early ends the command. Throws a FlotillaError, also from the iteration: see
   * readExecEvents. The output comes as binary frames, which cost the least, or as events in base64 from a
   * server that does not know frames.
   */
  async streamExec(
    machineId: string,
    body: MachineCommandRequest,
    options: CallOptions = {},
  ): Promise<AsyncGenerator<ExecEvent, void, undefined>> {
    return this.#streamOutput(`/v1/machines/${segment(machineId)}/exec/stream`, body, options);
  }

  /** `streamExec` in a session. */
  async streamExecInSession(
    machineId: string,
    sessionId: string,
    body: MachineCommandRequest,
    options: CallOptions = {},
  ): Promise<AsyncGenerator<ExecEvent, void, undefined>> {
    const path = `/v1/machines/${segment(machineId)}/sessions/${segment(sessionId)}/exec`;
    return this.#streamOutput(path, { ...body, stream: true }, options);
  }

  async #streamOutput(
    path: string,
    json: MachineCommandRequest,
    options: CallOptions,
  ): Promise<AsyncGenerator<ExecEvent, void, undefined>> {
    const answer = await this.call<Response>({ method: "POST", path, json, answer: "stream" }, framed(options));
    return readExecEvents(answer, options.signal);
  }

  /**
   * The tenant's events after `query.cursor`, then new ones as they are recorded; resolves when the stream
   * has begun. Throws a FlotillaError, also from the iteration: code `unreachable` when the stream broke.
   * Follow again with the cursor of the last event, and none is missed. `onChange` is called with what has
   * changed and has no events; read that again after each connect.
   */
  async followEvents(
    options: CallOptions<ListEventsQuery> = {},
    onChange?: (change: FollowedChange) => void,
  ): Promise<AsyncGenerator<TenantEvent, void, undefined>> {
    const call = { method: "GET", path: "/v1/events", answer: "stream" } as const;
    const query = { ...options.query, follow: true, ...(onChange === undefined ? {} : { changes: true }) };
    const answer = await this.call<Response>(call, { ...options, query });
    return readTenantEvents(answer, options.signal, onChange);
  }

  /**
   * A terminal that comes back by itself when its connection is lost, for a minute, without losing output or
   * input. Iterate over its output. It ends with its program, with `close`, or when it could not be reached.
   */
  keepTerminal(machineId: string, options: KeepTerminalOptions = {}): KeptTerminal {
    const { terminal, offset, onState, signal, query = {}, ...rest } = options;
    const id = terminal ?? terminalId();
    const { cols, rows } = query;
    return new KeptTerminal({
      ...{ id, isReader: false, signal, onState },
      offset: terminal === undefined ? null : (offset ?? 0),
      size: cols && rows ? { cols, rows } : null,
      open: ({ offset: from, size }) =>
        this.openTerminal(machineId, {
          ...rest,
          query: { ...query, ...size, terminal: id, ...(from !== null && { offset: from }) },
        }),
    });
  }

  /** Reads along at a terminal that `keepTerminal` began, here or elsewhere; it types and ends nothing. */
  viewTerminal(machineId: string, terminal: string, options: ViewTerminalOptions = {}): KeptTerminal {
    const { offset = 0, onState, signal, ...rest } = options;
    return new KeptTerminal({
      ...{ id: terminal, isReader: true, signal, onState, offset, size: null },
      open: ({ offset: from }) => this.watchTerminal(machineId, terminal, { ...rest, query: { offset: from ?? 0 } }),
    });
  }

  /** `execInSession` with streamed output, for readExecEvents. */
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
      if (!answer.ok) {
        const refusal = await errorOfAnswer(answer, name);
        // Its text may have been cut off by this.
        signal.throwIfAborted();
        throw refusal;
      }
      options.onHeaders?.(answer.headers);
      return (await readAnswer(call, answer)) as T;
    } catch (error) {
      if (error instanceof FlotillaError) throw error;
      throw noAnswer(error, { name, url: this.url, timedOut: timeout.signal.aborted, isAborted: signal.aborted });
    } finally {
      stopTimer();
    }
  }

  /**
   * Sends the call, and again after a pause while the server quickly says "not now" and the call may be
   * retried.
   */
  async #answer(call: ApiCall, options: AnyOptions, signal: AbortSignal): Promise<Response> {
    const retries = isRepeatable(call, options) ? this.#retries : 0;
    for (let tries = 0; ; tries++) {
      const sentAt = now();
      const answer = await this.#fetchOnce(call, options, signal).catch((error: unknown) => {
        // The key makes sure that what is sent again is done once.
        if (call.method !== "POST" || tries >= retries || signal.aborted) throw error;
        return null;
      });
      if (answer !== null && (tries >= retries || !isNotNow(answer) || now() - sentAt >= SLOW_MS)) return answer;
      const pauseMs = (answer && retryAfterMs(answer)) ?? RETRY_PAUSE_FIRST_MS * 2 ** tries;
      if (answer !== null && pauseMs > RETRY_PAUSE_MAX_MS) return answer;
      await answer?.body?.cancel();
      await pause(pauseMs, signal);
      signal.throwIfAborted();
    }
  }

  /** Also a fetch that throws at once rejects. */
  async #fetchOnce(call: ApiCall, options: AnyOptions, signal: AbortSignal): Promise<Response> {
    return this.#fetch(this.#address(call.path, options.query), this.#init(call, options, signal));
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
    // A refusal has its details in JSON only; any other answer is as it is without this header.
    if (!headers.has("accept")) headers.set("accept", `${PROBLEM}, */*`);
    const init: RequestInit = { method: call.method, headers, signal };
    if (call.json !== undefined) {
      headers.set("content-type", "application/json");
      init.body = JSON.stringify(call.json);
    } else if (call.bytes !== undefined) {
      headers.set("content-type", "application/octet-stream");
      const isStream = call.bytes instanceof ReadableStream;
      init.body = (isStream ? endingWith(signal, call.bytes) : call.bytes) as NonNullable<RequestInit["body"]>;
      // The standard requires this option wherever a body is a stream; without it Node and Chromium throw.
      if (isStream) Object.assign(init, { duplex: "half" });
    }
    return init;
  }

  /**
   * In Node the key is sent in a header. A browser's WebSocket has no headers, so there it is a query
   * parameter.
   */
  protected override openSocket(path: string, options: AnyOptions): WebSocket {
    // A socket that is closed at once would be so before its caller can listen for that.
    if (options.signal?.aborted === true)
      throw noAnswer(options.signal.reason, { name: `GET ${path}`, url: this.url, timedOut: false, isAborted: true });
    return this.#openSocketWith(this.#apiKey, path, options);
  }

  #openSocketWith(key: string | undefined, path: string, options: AnyOptions): WebSocket {
    // A worker of a browser has no document.
    const isBrowser = "document" in globalThis || "importScripts" in globalThis;
    const query = { ...(options.query as object | undefined), ...(isBrowser && key ? { access_token: key } : {}) };
    const address = this.#address(path, query).replace(/^http/, "ws");
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    if (isBrowser) return endWith(new WebSocket(address), options.signal, timeoutMs);
    const headers = { ...options.headers, ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) };
    // In Node the second parameter may hold request headers; the standard allows only subprotocols there.
    return endWith(openWithHeaders(address, headers), options.signal, timeoutMs);
  }
}

/**
 * The source, and an end of it as soon as the call is cancelled: Node's `fetch` reads on, without an end
 * where the source has none.
 */
function endingWith(signal: AbortSignal, source: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const reader = source.getReader();
  return new ReadableStream<Uint8Array>({
    start: (controller) => {
      const end = (): void => {
        controller.error(signal.reason);
        reader.cancel(signal.reason).catch(() => undefined);
      };
      signal.addEventListener("abort", end, { once: true });
    },
    pull: async (controller) => {
      const { value, done } = await reader.read();
      if (signal.aborted) return;
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** Closes the socket when the signal is aborted, and when it is not open after the time. */
function endWith(socket: WebSocket, signal: AbortSignal | undefined, timeoutMs: number | undefined): WebSocket {
  const close = (): void => socket.close();
  const stopTimer = timeoutMs === undefined ? () => {} : after(timeoutMs, close);
  socket.addEventListener("open", stopTimer);
  socket.addEventListener("close", () => {
    stopTimer();
    signal?.removeEventListener("abort", close);
  });
  signal?.addEventListener("abort", close);
  return socket;
}

/** The types of browsers do not know the second parameter of Node's. */
function openWithHeaders(address: string, headers: Readonly<Record<string, string>>): WebSocket {
  const NodeWebSocket = WebSocket as unknown as new (address: string, options: object) => WebSocket;
  return new NodeWebSocket(address, { headers });
}

/** `fetch` would show the key in its error. */
function requireHeaderText(apiKey: string): void {
  try {
    new Headers({ authorization: `Bearer ${apiKey}` });
  } catch {
    throw new TypeError("the API key has a character that no header can carry, such as a line break");
  }
}

/** Asks for binary frames. */
function framed({ headers, ...options }: CallOptions): CallOptions<ExecQuery> {
  return { ...options, headers: { ...headers, accept: `${EXEC_FRAMES_TYPE}, ${PROBLEM}` } };
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

/** Whether it may be sent twice: what changes nothing, or happens once for its idempotency key. */
function isRepeatable(call: ApiCall, options: AnyOptions): boolean {
  if (call.method === "GET" || call.method === "HEAD") return true;
  const isStreamed = call.answer === "stream" || call.bytes instanceof ReadableStream;
  return call.method === "POST" && options.idempotencyKey !== undefined && !isStreamed;
}

const isNotNow = (answer: Response): boolean =>
  RETRIED_STATUSES.includes(answer.status) || answer.headers.get("x-error-code") === "idempotency_in_progress";

/** `Retry-After` in either of its forms, in milliseconds from now; undefined when it is absent or invalid. */
function retryAfterMs(answer: Response): number | undefined {
  const value = answer.headers.get("retry-after");
  if (value === null) return undefined;
  const seconds = Number(value);
  if (value.trim() !== "" && Number.isFinite(seconds) && seconds >= 0) return seconds * 1000;
  // The date is compared with the server's own clock, so that a wrong clock of the caller does not matter.
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
      ? ["aborted", `${facts.name} was cancelled by its caller`]
      : ["unreachable", `${facts.url} gave no usable answer to ${facts.name}: ${reason(error)}`];
  return new FlotillaError({ status: 0, code, text, requestId: null, call: facts.name }, { cause: error });
}

/** The innermost cause that has a text says what happened; fetch itself only says "fetch failed". */
function reason(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof AggregateError && cause.errors.length > 0) return reason(cause.errors[0]);
  const inner = cause instanceof Error ? reason(cause) : "";
  if (inner !== "") return inner;
  return error instanceof Error ? error.message : String(error);
}
