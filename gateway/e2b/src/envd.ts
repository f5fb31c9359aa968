/**
 * The ports of sandboxes: the sandbox's own service (commands and files), the code interpreter, and what else
 * listens in it.
 *
 * Always:
 * - Commands and files need the sandbox's access token, or a signature made with it; the token's key decides
 *   what may be done. Other ports are open to everybody unless the sandbox was made with a token for them.
 * - A sandbox that is gone, paused or whose time is over answers 502, which clients take for its end.
 * - The credentials of a call do not reach the machine.
 */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { FlotillaError } from "@flotilla/sdk";
import { type Bridge, type BridgeAnswer, textOf } from "./bridge.ts";
import { answerJson, type Exchange } from "./exchange.ts";
import { isOver, type Known, type KnownSandboxes } from "./known.ts";
import type { Remembered } from "./remembered.ts";
import { closedPage, closedBody, goneBody, Refused } from "./refused.ts";
import type { Facts } from "./record.ts";
import { ENVD_PORT, FILES_PORT, type Route } from "./route.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { isSame, signatureOf, type Tokens } from "./tokens.ts";

const CODE_PORT = 49_999;
/** Paths of the service that only its owner calls. */
const PRIVATE_PATH = /^\/(init|freeze|collapse|fsfreeze|upgrade)\b/;
/** One sample of metrics counts for this long before and after it: it is taken for the request. */
const SAMPLE_SECONDS = 5;
/** The helper says so of a port on which nothing listens. */
const CLOSED = "x-flotilla-closed-port";
/** What the helper for commands serves; the other one serves the rest. */
const COMMANDS_PATH = /^\/(process\.Process\/|health$|envs$|init$)/;
const ANSWER_BYTES_MAX = 64 * 1024;
const CORS = {
  "access-control-allow-origin": "*",
  "access-control-allow-methods": "*",
  "access-control-allow-headers": "*",
  "access-control-max-age": "7200",
} as const;
/** Headers of one connection (RFC 9110, 7.6.1), or for the gateway alone. */
const NOT_PASSED = new Set([
  ...["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "host"],
  ...["authorization", "expect", "x-access-token", "e2b-sandbox-id", "e2b-sandbox-port", "e2b-traffic-access-token"],
]);

export interface EnvdParts {
  readonly bridge: Bridge;
  readonly tokens: Tokens;
  readonly known: KnownSandboxes;
  readonly remembered: Remembered;
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
}

type SandboxRoute = Extract<Route, { kind: "sandbox" }>;

export class EnvdCalls {
  readonly #parts: EnvdParts;

  constructor(parts: EnvdParts) {
    this.#parts = parts;
  }

  /** Answers a request for a port of a sandbox. Throws a Refused, or the API's own error. */
  async answer(exchange: Exchange, route: SandboxRoute): Promise<void> {
    const { request } = exchange;
    if (request.method === "OPTIONS" && route.port === ENVD_PORT) {
      exchange.response.writeHead(204, CORS);
      return void exchange.response.end();
    }
    const known = await this.#authorize(request, route);
    if (known === null) return answerJson(exchange, 502, goneBody(route.sandboxId));
    await this.#forward(exchange, route, known);
  }

  /** An address of a file without the name of a sandbox: the one whose token made the signature. */
  async answerUnnamed(exchange: Exchange, path: string): Promise<void> {
    for (const sandboxId of this.#parts.remembered.sandboxIds()) {
      if (!this.#hasSignature(exchange.request, { kind: "sandbox", sandboxId, port: ENVD_PORT, path })) continue;
      return await this.answer(exchange, { kind: "sandbox", sandboxId, port: ENVD_PORT, path });
    }
    throw new Refused(401, "missing signature query parameter");
  }

  /** A handshake that makes a connection of something else, such as a WebSocket. */
  async upgrade(request: IncomingMessage, socket: Duplex, route: SandboxRoute): Promise<void> {
    const known = await this.#authorize(request, route);
    const current = known === null || route.port === ENVD_PORT ? null : await this.#reached(known, route);
    if (current === null) return void socket.end("HTTP/1.1 502 Bad Gateway\r\n\r\n");
    const answer = await this.#call(request, route, current);
    const { message, upgraded } = answer;
    const lines = [`HTTP/1.1 ${message.statusCode} ${message.statusMessage}`];
    for (let at = 0; at < message.rawHeaders.length; at += 2)
      lines.push(`${message.rawHeaders[at]}: ${message.rawHeaders[at + 1]}`);
    socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    const other = upgraded?.socket ?? message;
    if (upgraded !== null && upgraded.head.byteLength > 0) socket.write(upgraded.head);
    other.pipe(socket);
    if (upgraded !== null) socket.pipe(upgraded.socket);
    for (const [one, end] of [
      [socket, other],
      [other, socket],
    ] as const) {
      one.on("error", () => end.destroy());
      one.once("close", () => end.destroy());
    }
  }

  /** What the sandbox uses now, as E2B's metrics have it. */
  async metrics(
    key: string,
    sandboxId: string,
    { start, end }: { readonly start: number | null; readonly end: number | null },
  ): Promise<readonly object[]> {
    const text = await this.#own(key, sandboxId, { method: "GET", path: "/metrics", body: null });
    const {
      ts = 0,
      cpu_count,
      cpu_used_pct,
      mem_used,
      mem_total,
      mem_cache,
      disk_used,
      disk_total,
    } = JSON.parse(text) as Record<string, number>;
    if ((start ?? 0) > ts + SAMPLE_SECONDS || (end ?? ts) < ts - SAMPLE_SECONDS) return [];
    const sample = { cpuCount: cpu_count, cpuUsedPct: cpu_used_pct, memUsed: mem_used, memTotal: mem_total };
    const timestamp = new Date(ts * 1000).toISOString();
    return [
      { timestamp, timestampUnix: ts, ...sample, memCache: mem_cache, diskUsed: disk_used, diskTotal: disk_total },
    ];
  }

  /** Later commands have these variables. */
  async setEnvironment(key: string, sandboxId: string, environment: Readonly<Record<string, string>>): Promise<void> {
    await this.#own(key, sandboxId, {
      method: "POST",
      path: "/init",
      body: Buffer.from(JSON.stringify({ environment })),
    });
  }

  async #own(
    key: string,
    sandboxId: string,
    call: { readonly method: string; readonly path: string; readonly body: Buffer | null },
  ): Promise<string> {
    const { bridge, known, sandboxes, tokens } = this.#parts;
    if (known.find(sandboxId) === undefined) await sandboxes.find(key, sandboxId);
    const found = known.find(sandboxId);
    if (found === undefined) throw new Refused(502, "the sandbox is not there");
    const port = helperPortOf(ENVD_PORT, call.path);
    await sandboxes.requireHelper(found, port);
    const headers: IncomingHttpHeaders = { "x-flotilla-token": tokens.ofHelper(found.facts.seed) };
    if (call.body !== null) headers["content-length"] = String(call.body.byteLength);
    const { message } = await bridge.call({ key, sandboxId, port, headers, ...call });
    const text = await textOf(message, ANSWER_BYTES_MAX);
    if ((message.statusCode ?? 500) >= 300) throw new Refused(message.statusCode ?? 502, text);
    return text;
  }

  /** null: the sandbox is not there, for all that is known. */
  async #authorize(request: IncomingMessage, route: SandboxRoute): Promise<Known | null> {
    const { sandboxId, port, path } = route;
    const grant = this.#grantOf(request, sandboxId);
    if (port === ENVD_PORT || port === CODE_PORT) {
      const isOpen = port === ENVD_PORT && /^\/health(\?|$)/.test(path);
      const hasSignature = grant === null && this.#hasSignature(request, route);
      const needsToken = port === ENVD_PORT || /^\/execute(\?|$)/.test(path);
      if (grant === null && !isOpen && !hasSignature && needsToken) throw new Refused(401, whyUnsigned(path));
      if (port === ENVD_PORT && PRIVATE_PATH.test(path)) throw new Refused(403, "only its owner may call this");
    }
    const known = await this.#known(sandboxId, grant);
    if (known === null) return null;
    if (port !== ENVD_PORT && !known.facts.isPublic && grant === null) this.#requireTraffic(request, sandboxId);
    return isOver(known, this.#parts.clock.now()) && !known.facts.pausesAtEnd ? null : known;
  }

  #grantOf({ headers }: IncomingMessage, sandboxId: string): string | null {
    const given = headers["x-access-token"];
    if (typeof given !== "string" || given === "") return null;
    const grant = this.#parts.tokens.open(given);
    if (grant === null || grant.sandboxId !== sandboxId) throw new Refused(401, "unauthorized access token");
    return grant.key;
  }

  async #known(sandboxId: string, key: string | null): Promise<Known | null> {
    const { known, remembered, sandboxes } = this.#parts;
    const found = known.find(sandboxId);
    if (found !== undefined && (key === null || key === found.key)) return found;
    const given = key ?? remembered.keyOf(sandboxId);
    if (given === undefined) return null;
    try {
      await sandboxes.find(given, sandboxId);
    } catch (error) {
      const isGone = error instanceof Refused && error.status === 404;
      const isShut = key === null && error instanceof FlotillaError && error.status === 401;
      if (!isGone && !isShut) throw error;
      remembered.forget(sandboxId);
      return null;
    }
    return known.find(sandboxId) ?? null;
  }

  #requireTraffic({ headers }: IncomingMessage, sandboxId: string): void {
    const given = headers["e2b-traffic-access-token"];
    if (typeof given === "string" && isSame(given, this.#parts.tokens.ofTraffic(sandboxId))) return;
    throw new Refused(403, "the header e2b-traffic-access-token is missing or wrong");
  }

  #hasSignature({ method }: IncomingMessage, { sandboxId, path }: SandboxRoute): boolean {
    const { pathname, searchParams } = new URL(path, "http://gateway");
    const given = searchParams.get("signature");
    const key = this.#parts.known.find(sandboxId)?.key ?? this.#parts.remembered.keyOf(sandboxId);
    if (pathname !== "/files" || given === null || key === undefined) return false;
    const expiration = searchParams.get("signature_expiration");
    const operation = method === "POST" ? ("write" as const) : ("read" as const);
    const text = {
      path: searchParams.get("path") ?? "",
      operation,
      user: searchParams.get("username") ?? "",
      expiration,
    };
    const token = this.#parts.tokens.seal({ key, sandboxId });
    if (!isSame(given, signatureOf(text, token))) return false;
    if (expiration !== null && Number(expiration) * 1000 < this.#parts.clock.now())
      throw new Refused(401, "signature is already expired");
    return true;
  }

  async #forward(exchange: Exchange, route: SandboxRoute, known: Known): Promise<void> {
    const { request, response } = exchange;
    const current = await this.#reached(known, route);
    if (current === null) return answerJson(exchange, 502, goneBody(known.sandboxId));
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    const { message } = await this.#call(request, route, current, gone.signal);
    const refusal = message.headers["x-error-code"];
    if (typeof refusal === "string") return await this.#refuse(exchange, { known: current, message, code: refusal });
    if (message.headers[CLOSED] !== undefined) {
      message.resume();
      return answerClosed(exchange, route);
    }
    response.writeHead(message.statusCode ?? 502, passedOf(message.headers, route.port));
    // A stream's reader waits for its head.
    response.flushHeaders();
    message.pipe(response);
    message.once("aborted", () => response.destroy());
    message.once("error", () => response.destroy());
  }

  /** The sandbox with its helper; one that visitors may wake is resumed. null: it does not run. */
  async #reached(known: Known, { port, path }: SandboxRoute): Promise<Known | null> {
    const { sandboxes, clock } = this.#parts;
    const helper = helperPortOf(port, path);
    const current = (): Known => this.#parts.known.find(known.sandboxId) ?? known;
    // The server may have paused it.
    if (isOver(known, clock.now())) known.helpers = new Set();
    try {
      try {
        await sandboxes.requireHelper(known, helper);
      } catch (error) {
        const isWoken = known.facts.resumesByTraffic && isNotRunning(error) && !/^\/health(\?|$)/.test(path);
        if (!isWoken) throw error;
        await sandboxes.wake(known);
        await sandboxes.requireHelper(current(), helper);
      }
    } catch (error) {
      if (isNotRunning(error)) return null;
      throw error;
    }
    return current();
  }

  async #refuse(
    exchange: Exchange,
    { known, message, code }: { readonly known: Known; readonly message: IncomingMessage; readonly code: string },
  ): Promise<void> {
    const text = await textOf(message, ANSWER_BYTES_MAX);
    known.helpers = new Set();
    const status = message.statusCode ?? 502;
    if (["not_found", "unavailable", "guest_unreachable"].includes(code)) {
      if (code === "not_found") this.#parts.known.forget(known.sandboxId);
      return answerJson(exchange, 502, goneBody(known.sandboxId));
    }
    if (status === 401) this.#parts.known.forget(known.sandboxId);
    answerJson(exchange, status, new Refused(status, text.trim()).body);
  }

  #call(request: IncomingMessage, route: SandboxRoute, known: Known, signal?: AbortSignal): Promise<BridgeAnswer> {
    const { bridge, tokens } = this.#parts;
    const headers = headersOf(request, route, known.facts);
    headers["x-flotilla-token"] = tokens.ofHelper(known.facts.seed);
    const { method = "GET" } = request;
    const hasBody = request.headers["transfer-encoding"] !== undefined || Number(request.headers["content-length"]) > 0;
    const body = hasBody ? request : null;
    const port = helperPortOf(route.port, route.path);
    const call = { key: known.key, sandboxId: known.sandboxId, port, method, path: route.path, headers, body };
    return bridge.call(signal === undefined ? call : { ...call, signal });
  }
}

const isNotRunning = (error: unknown): boolean => error instanceof Refused && [404, 502, 503].includes(error.status);

/** Browsers get a page. */
function answerClosed(exchange: Exchange, { sandboxId, port }: SandboxRoute): void {
  const { "user-agent": agent = "" } = exchange.request.headers;
  if (!agent.startsWith("Mozilla/")) return answerJson(exchange, 502, closedBody(sandboxId, port));
  exchange.response.writeHead(502, { "content-type": "text/html; charset=utf-8" });
  exchange.response.end(closedPage(sandboxId, port));
}

/** Which helper serves a path of a port of the sandbox. */
function helperPortOf(port: number, path: string): number {
  const [name = ""] = path.split("?");
  return port === ENVD_PORT && COMMANDS_PATH.test(name) ? ENVD_PORT : FILES_PORT;
}

function whyUnsigned(path: string): string {
  const { pathname, searchParams } = new URL(path, "http://gateway");
  if (pathname !== "/files") return "unauthorized access token";
  return searchParams.has("signature") ? "invalid signature" : "missing signature query parameter";
}

/** The headers of a request as its receiver in the machine gets them. */
function headersOf(
  { headers: given }: IncomingMessage,
  { port }: SandboxRoute,
  { hostMask }: Facts,
): IncomingHttpHeaders {
  const passed = Object.entries(given).filter(([name]) => !NOT_PASSED.has(name) && !name.startsWith("x-flotilla-"));
  const headers: IncomingHttpHeaders = Object.fromEntries(passed);
  if (port === ENVD_PORT) {
    const basic = /^Basic (\S+)$/i.exec(given.authorization ?? "")?.[1];
    const user = basic === undefined ? "" : Buffer.from(basic, "base64").toString("utf8").split(":")[0];
    if (user !== undefined && user !== "") headers["x-flotilla-user"] = user;
    return headers;
  }
  headers["x-flotilla-port"] = String(port);
  const host = hostMask?.replaceAll("${PORT}", String(port)) ?? given.host;
  if (host !== undefined) headers["x-flotilla-host"] = host;
  if (given.authorization !== undefined) headers["x-flotilla-authorization"] = given.authorization;
  if (given.upgrade !== undefined) Object.assign(headers, { connection: "Upgrade", upgrade: given.upgrade });
  return headers;
}

function passedOf(headers: IncomingHttpHeaders, port: number): IncomingHttpHeaders {
  const own = ["connection", "keep-alive", "transfer-encoding", "x-request-id"];
  const passed = Object.entries(headers).filter(([name]) => !own.includes(name));
  return { ...Object.fromEntries(passed), ...(port === ENVD_PORT ? CORS : {}) };
}
