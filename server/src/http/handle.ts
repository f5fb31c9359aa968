/**
 * What happens to every request, in this order: request id → route → key → scope → tenant → rate → validate →
 * idempotency → handler → encode → log.
 *
 * Always:
 * - who has no key learns nothing: a path that does not exist answers 401 like any other;
 * - whatever a caller sends, it gets a refusal with a reason and never a 500; what is thrown and is not a Refusal is a
 *   fault of ours, and its message goes to the log only;
 * - every answer carries `x-request-id`.
 *
 * A request whose caller goes away has its signal aborted and is logged with status 499.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import { JSON_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import {
  authenticateConnectToken,
  authenticateKey,
  authenticateNode,
  bearerOf,
  type ConnectTokenAuthenticator,
  type NodeAuthenticator,
} from "../auth/authenticate.ts";
import type { AccessWatch, Right } from "../auth/access-watch.ts";
import type { KeyCache, KnownKey } from "../auth/key-cache.ts";
import { hasConnectTokenForm } from "../auth/keys.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Context, Log } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import { CallerGone, hasBody, NOTHING, parseJson, readBody } from "./body.ts";
import type { CallerPresence } from "./caller-presence.ts";
import { encode, type HeaderList, type Outgoing, recordOf, send, sendUpgrade } from "./encode.ts";
import type { AnyHandler, AnyRequest, Caller, NodeCaller, RawRequest } from "./handler.ts";
import { idempotently, type WireAnswer } from "./idempotency.ts";
import type { Ingress } from "./ingress.ts";
import type { Page } from "./page.ts";
import { coerceQuery } from "./query.ts";
import type { RateLimiter } from "./rate.ts";
import { errorAnswer } from "./refuse.ts";
import type { RequestIds } from "./request-id.ts";
import { isOperation, rightOf } from "./right.ts";
import type { PathEntry, Route } from "./route-table.ts";
import { checkHandshake, type Upgrade } from "./upgrade.ts";

export interface HandleParts {
  readonly context: Context;
  readonly keys: KeyCache;
  readonly access: AccessWatch;
  readonly lastUsed: LastUsed;
  readonly nodes: NodeAuthenticator;
  readonly connectTokens: ConnectTokenAuthenticator;
  readonly ingress: Ingress;
  readonly rate: RateLimiter;
  readonly requestIds: RequestIds;
  /** Called once per answered request. */
  readonly observe: (seen: { readonly name: string; readonly status: number; readonly seconds: number }) => void;
}

/** A request as the router hands it over. `entry` undefined: no such path. */
export interface Incoming {
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  readonly params: Readonly<Record<string, string>>;
  readonly entry: PathEntry | Page | undefined;
  readonly url: string;
  /** Only of a request that may become something else: a WebSocket, mostly. */
  readonly upgrade: Upgrade | undefined;
}

/** What is learnt about a request on its way; for the log and the headers of the answer. */
interface Exchange extends Incoming {
  /** By the monotonic clock. */
  readonly startedAt: number;
  readonly requestId: string;
  readonly presence: CallerPresence;
  readonly headers: HeaderList;
  /** Whether it goes to a machine, past everything that is the API's. */
  readonly isForMachine: boolean;
  bearer: string | undefined;
  key: KnownKey | undefined;
  node: NodeCaller | undefined;
}

const STATUS_CALLER_GONE = 499;
const PARAMETER_CHARACTERS_MAX = 256;
/** Of a path, in the log. */
const PATH_CHARACTERS_MAX = 512;

/**
 * A promise only where something is waited for: a request that is answered from memory is answered at once. Throws or
 * rejects only for a fault in sending.
 */
export function handle(parts: HandleParts, incoming: Incoming, presence: CallerPresence): Promise<void> | undefined {
  const { message } = incoming;
  const startedAt = parts.context.clock.monotonic();
  const requestId = parts.requestIds(message.headers["x-request-id"]);
  const headers = ["x-request-id", requestId];
  const exchange: Exchange = {
    ...incoming,
    startedAt,
    requestId,
    presence,
    headers,
    isForMachine: parts.ingress.owns(message),
    bearer: undefined,
    key: undefined,
    node: undefined,
  };
  const refuse = (error: unknown): Outgoing => refusal(parts, exchange, error);
  let answering: Outgoing | Promise<Outgoing>;
  try {
    answering = answer(parts, exchange);
  } catch (error) {
    answering = refuse(error);
  }
  if (!(answering instanceof Promise)) return finish(parts, exchange, answering);
  return answering.catch(refuse).then((outgoing) => finish(parts, exchange, outgoing));
}

function finish(parts: HandleParts, exchange: Exchange, outgoing: Outgoing): Promise<void> | undefined {
  const log = (isSent: boolean): void => logRequest(parts, exchange, isSent ? outgoing.status : STATUS_CALLER_GONE);
  const sending = sendOut(exchange, outgoing);
  if (sending instanceof Promise) return sending.then(log);
  log(sending);
  return undefined;
}

function sendOut(
  { message, response, upgrade, headers, presence }: Exchange,
  outgoing: Outgoing,
): Promise<boolean> | boolean {
  if (outgoing.sendAnswer !== undefined) return outgoing.sendAnswer(response, recordOf(headers));
  if (upgrade !== undefined && outgoing.upgrade !== undefined)
    return sendUpgrade(upgrade, response, { ...recordOf(headers), ...outgoing.headers }, outgoing.upgrade);
  return send({ message, response, presence }, headers, outgoing);
}

/** The steps of a request. Each one throws a Refusal or lets it go on. */
function answer(parts: HandleParts, exchange: Exchange): Promise<Outgoing> | Outgoing {
  if (exchange.isForMachine) return answerForMachine(parts, exchange);
  const route = findRoute(exchange);
  if (route === "page") return (exchange.entry as Page).answer();
  const asking = route?.endpoint.access === "public" ? undefined : authenticate(parts, exchange, route);
  return asking === undefined ? serve(parts, exchange, route) : asking.then(() => serve(parts, exchange, route));
}

/** The steps that follow when it is known who asks. */
function serve(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<Outgoing> | Outgoing {
  if (route === undefined) throw unroutable(exchange);
  checkScope(route, exchange.key);
  checkTenant(route, exchange.key);
  takeFromBucket(parts, exchange);
  const { handler } = route;
  if (handler === undefined)
    throw new Refusal("not_implemented", `${route.endpoint.method} ${route.endpoint.path} is not served yet`);
  if (route.endpoint.isUpgrade) checkHandshake(exchange.upgrade);
  const params = checkParameters(exchange.params, route);
  if (exchange.key !== undefined)
    exchange.presence.admit(parts.access, rightOf(route.endpoint, exchange.key, params["id"]));
  const query = checkQuery(exchange.url, route);
  const call = (bytes: Buffer | undefined): Promise<Outgoing> | Outgoing => {
    const body = bytes === undefined ? exchange.message : bodyOf(bytes, route);
    const request = new CheckedRequest(parts, exchange, { params, query, body });
    const run = () => runHandler(route, handler, request);
    const { "idempotency-key": idempotencyKey } = exchange.message.headers;
    const isOnce = idempotencyKey !== undefined && exchange.key !== undefined && route.endpoint.method === "POST";
    if (!isOnce || bytes === undefined) return run();
    return once(parts, exchange, { idempotencyKey: String(idempotencyKey), bytes, run });
  };
  const reading = bytesOf(exchange.message, route);
  return reading instanceof Promise ? reading.then(call) : call(reading);
}

function runHandler(route: Route, handler: AnyHandler, request: AnyRequest): Promise<Outgoing> | Outgoing {
  const replying = handler(request);
  return replying instanceof Promise ? replying.then((reply) => encode(route, reply)) : encode(route, replying);
}

function answerForMachine(parts: HandleParts, exchange: Exchange): Promise<Outgoing> {
  const authenticate = async (bearer: string): Promise<KnownKey> => {
    exchange.key = await authenticateKey(parts, bearer);
    return exchange.key;
  };
  const { presence } = exchange;
  const admit = (right: Right): void => presence.admit(parts.access, right);
  return parts.ingress.answer({ raw: exchange, signal: presence.signal, authenticate, admit });
}

/** undefined: no such path, or not with this method; which of the two is told only to those who have a key. */
function findRoute({ entry, message }: Exchange): Route | "page" | undefined {
  if (entry === undefined) return undefined;
  if ("answer" in entry) {
    if (message.method === "GET" || message.method === "HEAD") return "page";
    throw new Refusal("method_not_allowed", "this path only serves GET", { allow: "GET, HEAD" });
  }
  const route = entry.routes[message.method ?? ""];
  if (route !== undefined) return route;
  const isPublic = Object.values(entry.routes).some((other) => other.endpoint.access === "public");
  if (isPublic) throw unroutable({ entry, message });
  return undefined;
}

function unroutable({ entry, message }: Pick<Exchange, "entry" | "message">): Refusal {
  if (entry === undefined || "answer" in entry) return new Refusal("not_found", "no such path");
  const text = `${message.method} is not served on this path; it serves ${entry.allow}`;
  return new Refusal("method_not_allowed", text, { allow: entry.allow });
}

/** A path that does not exist asks for an API key like most that do. */
function authenticate(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<void> | undefined {
  const access = route?.endpoint.access;
  exchange.bearer = bearerOf(exchange.message.headers.authorization);
  const { isUpgrade, isBridge } = route?.endpoint ?? {};
  if (exchange.bearer === undefined && (isUpgrade || (isBridge && exchange.upgrade !== undefined)))
    exchange.bearer = searchOf(exchange.url).get("access_token") ?? undefined;
  if (access === "joinToken" || access === "nodeCredential") {
    return authenticateNode(parts.nodes, exchange.bearer, access).then((node) => void (exchange.node = node));
  }
  if (isBridge && hasConnectTokenForm(exchange.bearer)) {
    const asking = authenticateConnectToken(parts.connectTokens, exchange.bearer, exchange.params["id"] ?? "");
    return asking.then((key) => void (exchange.key = key));
  }
  const key = authenticateKey(parts, exchange.bearer);
  if (key instanceof Promise) return key.then((known) => void (exchange.key = known));
  exchange.key = key;
  return undefined;
}

function checkScope({ endpoint: { access } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || typeof access === "string") return;
  if (!access.some((scope) => grants(key.scopes, scope)))
    throw new Refusal("missing_scope", `missing scope: ${access.join(" or ")}`);
}

/** An operator's key still reaches what only operators do: it is the way to end a suspension. */
function checkTenant({ endpoint: { access } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || !key.isSuspended) return;
  if (!isOperation(access))
    throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
}

function takeFromBucket({ rate }: HandleParts, exchange: Exchange): void {
  const { key } = exchange;
  if (key === undefined) return;
  const limits = { perSecond: key.requestsPerSecond, burst: key.burst };
  const verdict = rate.take(key.tenantId, limits, exchange.startedAt);
  exchange.headers.push(...verdict.headers);
  if (!verdict.isAllowed)
    throw new Refusal("rate_limited", `too many requests; the plan allows ${key.requestsPerSecond} a second`);
}

/** Signal and log are made when they are asked for: most requests wait for nothing, and log nothing of their own. */
class CheckedRequest implements AnyRequest {
  readonly requestId: string;
  readonly caller: Caller | NodeCaller | null;
  readonly params: AnyRequest["params"];
  readonly query: unknown;
  readonly body: unknown;
  readonly headers: AnyRequest["headers"];
  readonly raw: RawRequest;
  readonly #presence: CallerPresence;
  readonly #log: Log;

  constructor(
    { context }: HandleParts,
    exchange: Exchange,
    { params, query, body }: Pick<AnyRequest, "params" | "query" | "body">,
  ) {
    const { requestId, message, presence, key, node } = exchange;
    this.requestId = requestId;
    this.caller = key ?? node ?? null;
    this.params = params;
    this.query = query;
    this.body = body;
    this.headers = message.headers;
    this.raw = exchange;
    this.#presence = presence;
    this.#log = context.log;
  }

  get signal(): AbortSignal {
    return this.#presence.signal;
  }

  get log(): Log {
    return this.#log.child({ requestId: this.requestId });
  }
}

/** No id has a NUL or is long, so such a path names nothing. */
function checkParameters(raw: Readonly<Record<string, string>>, route: Route): Readonly<Record<string, string>> {
  const params: Record<string, string> = {};
  for (const name of route.segmentNames) {
    const value = raw[name] ?? "";
    if (value.length > PARAMETER_CHARACTERS_MAX || value === "") throw new Refusal("not_found", "no such resource");
    params[name] = value;
  }
  if (route.tailName !== undefined) params[route.tailName] = raw["*"] ?? "";
  for (const name in params) {
    const value = params[name] ?? "";
    if (value.includes("\0") || !value.isWellFormed()) throw new Refusal("not_found", "no such resource");
  }
  return params;
}

function checkQuery(url: string, route: Route): Readonly<Record<string, unknown>> {
  if (route.checkQuery === undefined || route.endpoint.query === undefined) return {};
  const query = coerceQuery(route.endpoint.query, searchOf(url));
  const fault = route.checkQuery(query);
  if (fault !== undefined) throw new Refusal("invalid_body", `Failed to deserialize query string: ${fault}`);
  return query;
}

const searchOf = (url: string): URLSearchParams => {
  const at = url.indexOf("?");
  return new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
};

/** The body as it came; undefined when the endpoint takes it as a stream. A promise only where one comes. */
function bytesOf(message: IncomingMessage, route: Route): Promise<Buffer> | Buffer | undefined {
  const declared = route.endpoint.body;
  if (declared?.kind === "bytes" || route.endpoint.isBridge === true) return undefined;
  return hasBody(message) ? readBody(message, declared?.maxBytes ?? JSON_BODY_BYTES_MAX) : NOTHING;
}

function bodyOf(bytes: Buffer, route: Route): unknown {
  const declared = route.endpoint.body;
  // An endpoint without a declared body takes and ignores one: clients send `{}`.
  if (declared?.kind !== "json") return undefined;
  const body = parseJson(bytes);
  if (body === undefined && !declared.isOptional)
    throw new Refusal("invalid_json", "Failed to parse the request body as JSON: the body is empty");
  if ((body === undefined || body === null) && declared.isOptional) return undefined;
  const fault = route.checkBody?.(body);
  if (fault !== undefined)
    throw new Refusal("invalid_body", `Failed to deserialize the JSON body into the target type: ${fault}`);
  return body;
}

interface OnceOptions {
  readonly idempotencyKey: string;
  readonly bytes: Buffer;
  readonly run: () => Promise<Outgoing> | Outgoing;
}

/** Runs the handler under the idempotency key. A stream is passed through and not kept. */
async function once(
  parts: HandleParts,
  exchange: Exchange,
  { idempotencyKey, bytes, run }: OnceOptions,
): Promise<Outgoing> {
  let stream: Outgoing | undefined;
  const work = async (): Promise<WireAnswer> => {
    let outgoing: Outgoing;
    try {
      outgoing = await run();
    } catch (error) {
      outgoing = refusal(parts, exchange, error);
    }
    const { status, headers, body } = outgoing;
    if (typeof body === "string") return { status, headers, body };
    stream = outgoing;
    return { status, headers, body: null };
  };
  const request = {
    key: idempotencyKey,
    keyId: exchange.key?.keyId ?? "",
    bearer: exchange.bearer ?? "",
    fingerprintOf: [exchange.message.method ?? "", exchange.url, bytes],
  };
  const wire = await idempotently(parts.context, request, work);
  return stream ?? { ...wire, body: wire.body ?? "" };
}

function refusal(parts: HandleParts, exchange: Exchange, error: unknown): Outgoing {
  return errorAnswer(asRefusal(parts, exchange, error), exchange.message.headers.accept, exchange.requestId);
}

function asRefusal({ context }: HandleParts, { requestId, presence }: Exchange, error: unknown): Refusal {
  // Whatever failed, it did because the caller's right has ended. The rest of a body is not waited for.
  if (presence.lost !== undefined)
    return new Refusal(presence.lost.code, presence.lost.message, { connection: "close" });
  if (error instanceof Refusal) return error;
  if (error instanceof DatabaseUnavailable) {
    context.log.warn({ requestId, reason: error.message }, "a request found no database");
    return new Refusal("unavailable", "the database does not answer now; try again in a moment", {
      "retry-after": "1",
    });
  }
  if (error instanceof CallerGone || presence.hasGone) return new Refusal("unavailable", "the caller went away");
  context.log.error({ requestId, error }, "a request failed");
  return new Refusal("internal", `the server failed; its log names the reason under request id ${requestId}`);
}

function logRequest(parts: HandleParts, exchange: Exchange, status: number): void {
  const { context, observe } = parts;
  const { entry, message, key, node, requestId, isForMachine, startedAt } = exchange;
  const route = entry !== undefined && "routes" in entry ? entry.routes[message.method ?? ""] : undefined;
  const name = isForMachine ? "ingress" : (route?.name ?? "none");
  const elapsedMs = context.clock.monotonic() - startedAt;
  observe({ name, status, seconds: elapsedMs / 1000 });
  const who = key === undefined ? { nodeId: node?.nodeId } : { keyId: key.keyId, tenantId: key.tenantId };
  // The query is left out: it may hold an access token.
  const at = exchange.url.indexOf("?");
  const path = exchange.url.slice(0, Math.min(at < 0 ? PATH_CHARACTERS_MAX : at, PATH_CHARACTERS_MAX));
  const fields = {
    requestId,
    name,
    method: message.method,
    path,
    status,
    ms: Math.round(elapsedMs * 100) / 100,
    ...who,
  };
  if (status >= 500 && status !== 501) context.log.warn(fields, "request");
  else context.log.info(fields, "request");
}
