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
import { authenticateKey, authenticateNode, bearerOf, type NodeAuthenticator } from "../auth/authenticate.ts";
import type { KeyCache, KnownKey } from "../auth/key-cache.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Context } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import { CallerGone, parseJson, readBody } from "./body.ts";
import { encode, type Outgoing, send, sendUpgrade } from "./encode.ts";
import type { AnyReply, AnyRequest, Caller, NodeCaller } from "./handler.ts";
import { idempotently, type WireAnswer } from "./idempotency.ts";
import type { Page } from "./page.ts";
import { coerceQuery } from "./query.ts";
import type { RateLimiter } from "./rate.ts";
import { errorAnswer } from "./refuse.ts";
import type { RequestIds } from "./request-id.ts";
import type { PathEntry, Route } from "./route-table.ts";
import { checkHandshake, type Upgrade } from "./upgrade.ts";

export interface HandleParts {
  readonly context: Context;
  readonly keys: KeyCache;
  readonly lastUsed: LastUsed;
  readonly nodes: NodeAuthenticator;
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
  /** Only of a WebSocket handshake. */
  readonly upgrade: Upgrade | undefined;
}

/** What is learnt about a request on its way; for the log and the headers of the answer. */
interface Exchange extends Incoming {
  readonly requestId: string;
  readonly signal: AbortSignal;
  readonly headers: Record<string, string>;
  bearer: string | undefined;
  key: KnownKey | undefined;
  node: NodeCaller | undefined;
}

const STATUS_CALLER_GONE = 499;
const PARAMETER_CHARACTERS_MAX = 256;

export async function handle(parts: HandleParts, incoming: Incoming, signal: AbortSignal): Promise<void> {
  const { message, response } = incoming;
  const startedAt = parts.context.clock.monotonic();
  const requestId = parts.requestIds(message.headers["x-request-id"]);
  const headers: Record<string, string> = { "x-request-id": requestId };
  const exchange: Exchange = {
    ...incoming,
    requestId,
    signal,
    headers,
    bearer: undefined,
    key: undefined,
    node: undefined,
  };
  let outgoing: Outgoing;
  try {
    outgoing = await answer(parts, exchange);
  } catch (error) {
    outgoing = refusal(parts, exchange, error);
  }
  const { upgrade } = incoming;
  const isSent =
    upgrade !== undefined && outgoing.upgrade !== undefined
      ? sendUpgrade(upgrade, response, { ...headers, ...outgoing.headers }, outgoing.upgrade)
      : await send(message, response, headers, outgoing);
  logRequest(parts, exchange, isSent ? outgoing.status : STATUS_CALLER_GONE, startedAt);
}

/** The steps of a request. Each one throws a Refusal or lets it go on. */
async function answer(parts: HandleParts, exchange: Exchange): Promise<Outgoing> {
  const route = findRoute(exchange);
  if (route === "page") return (exchange.entry as Page).answer();
  if (route?.endpoint.access !== "public") await authenticate(parts, exchange, route);
  if (route === undefined) throw unroutable(exchange);
  checkScope(route, exchange.key);
  checkTenant(route, exchange.key);
  takeFromBucket(parts, exchange);
  if (route.handler === undefined)
    throw new Refusal("not_implemented", `${route.endpoint.method} ${route.endpoint.path} is not served yet`);
  if (route.endpoint.isUpgrade) checkHandshake(exchange.upgrade);
  const { request, bytes } = await validate(parts, exchange, route);
  const run = async (): Promise<Outgoing> => encode(route, await (route.handler as Run)(request));
  const { "idempotency-key": idempotencyKey } = exchange.message.headers;
  if (
    idempotencyKey === undefined ||
    bytes === undefined ||
    exchange.key === undefined ||
    route.endpoint.method !== "POST"
  )
    return run();
  return once(parts, exchange, { idempotencyKey: String(idempotencyKey), bytes, run });
}

type Run = (request: AnyRequest) => Promise<AnyReply>;

/** undefined: no such path, or not with this method; which of the two is told only to those who have a key. */
function findRoute({ entry, message }: Exchange): Route | "page" | undefined {
  if (entry === undefined) return undefined;
  if ("answer" in entry) {
    if (message.method === "GET" || message.method === "HEAD") return "page";
    throw new Refusal("method_not_allowed", "this path only serves GET", { allow: "GET, HEAD" });
  }
  const route = entry.routes[message.method ?? ""];
  const isPublic = Object.values(entry.routes).some((other) => other.endpoint.access === "public");
  if (route === undefined && isPublic) throw unroutable({ entry, message });
  return route;
}

function unroutable({ entry, message }: Pick<Exchange, "entry" | "message">): Refusal {
  if (entry === undefined || "answer" in entry) return new Refusal("not_found", "no such path");
  const text = `${message.method} is not served on this path; it serves ${entry.allow}`;
  return new Refusal("method_not_allowed", text, { allow: entry.allow });
}

/** A path that does not exist asks for an API key like most that do. */
async function authenticate(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<void> {
  const access = route?.endpoint.access;
  exchange.bearer = bearerOf(exchange.message.headers.authorization);
  if (exchange.bearer === undefined && route?.endpoint.isUpgrade === true)
    exchange.bearer = searchOf(exchange.url).get("access_token") ?? undefined;
  if (access === "joinToken" || access === "nodeCredential") {
    exchange.node = await authenticateNode(parts.nodes, exchange.bearer, access);
  } else {
    exchange.key = await authenticateKey({ ...parts, clock: parts.context.clock }, exchange.bearer);
  }
}

function checkScope({ endpoint: { access } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || typeof access === "string") return;
  if (!access.some((scope) => grants(key.scopes, scope)))
    throw new Refusal("missing_scope", `missing scope: ${access.join(" or ")}`);
}

/** An operator's key still reaches what only operators do: it is the way to end a suspension. */
function checkTenant({ endpoint: { access } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || !key.isSuspended) return;
  const isOperation = typeof access !== "string" && access.includes("admin");
  if (!isOperation) throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
}

function takeFromBucket({ rate }: HandleParts, exchange: Exchange): void {
  const { key } = exchange;
  if (key === undefined) return;
  const verdict = rate.take(key.tenantId, { perSecond: key.requestsPerSecond, burst: key.burst });
  Object.assign(exchange.headers, verdict.headers);
  if (!verdict.isAllowed)
    throw new Refusal("rate_limited", `too many requests; the plan allows ${key.requestsPerSecond} a second`);
}

/** `bytes`: the JSON body as it came; undefined when the endpoint takes a stream. */
async function validate(
  parts: HandleParts,
  exchange: Exchange,
  route: Route,
): Promise<{ readonly request: AnyRequest; readonly bytes: Buffer | undefined }> {
  const params = checkParameters(exchange.params, route);
  const query = checkQuery(exchange.url, route);
  const { body, bytes } = await checkBody(exchange.message, route);
  const { key, node } = exchange;
  const caller = key === undefined ? (node ?? null) : callerOf(key);
  const { log } = parts.context;
  const request = {
    requestId: exchange.requestId,
    caller,
    params,
    query,
    body,
    headers: exchange.message.headers,
    signal: exchange.signal,
    // Made when asked for: most requests log nothing of their own.
    get log() {
      return log.child({ requestId: exchange.requestId });
    },
  };
  return { request, bytes };
}

const callerOf = ({ keyId, tenantId, scopes, isAdmin }: KnownKey): Caller => ({
  kind: "key",
  keyId,
  tenantId,
  scopes,
  isAdmin,
});

/** No id has a NUL or is long, so such a path names nothing. */
function checkParameters(raw: Readonly<Record<string, string>>, route: Route): Readonly<Record<string, string>> {
  const params: Record<string, string> = {};
  for (const name of route.segmentNames) {
    const value = raw[name] ?? "";
    if (value.length > PARAMETER_CHARACTERS_MAX || value === "") throw new Refusal("not_found", "no such resource");
    params[name] = value;
  }
  if (route.tailName !== undefined) params[route.tailName] = raw["*"] ?? "";
  for (const value of Object.values(params)) {
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

async function checkBody(
  message: IncomingMessage,
  route: Route,
): Promise<{ body: unknown; bytes: Buffer | undefined }> {
  const declared = route.endpoint.body;
  if (declared?.kind === "bytes") return { body: message, bytes: undefined };
  const bytes = await readBody(message, declared?.maxBytes ?? JSON_BODY_BYTES_MAX);
  // An endpoint without a declared body takes and ignores one: clients send `{}`.
  if (declared === undefined) return { body: undefined, bytes };
  const body = parseJson(bytes);
  if (body === undefined && !declared.isOptional)
    throw new Refusal("invalid_json", "Failed to parse the request body as JSON: the body is empty");
  if ((body === undefined || body === null) && declared.isOptional) return { body: undefined, bytes };
  const fault = route.checkBody?.(body);
  if (fault !== undefined)
    throw new Refusal("invalid_body", `Failed to deserialize the JSON body into the target type: ${fault}`);
  return { body, bytes };
}

interface OnceOptions {
  readonly idempotencyKey: string;
  readonly bytes: Buffer;
  readonly run: () => Promise<Outgoing>;
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

function asRefusal({ context }: HandleParts, { requestId, signal }: Exchange, error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof DatabaseUnavailable) {
    context.log.warn({ requestId, reason: error.message }, "a request found no database");
    return new Refusal("unavailable", "the database does not answer now; try again in a moment", {
      "retry-after": "1",
    });
  }
  if (error instanceof CallerGone || signal.aborted) return new Refusal("unavailable", "the caller went away");
  context.log.error({ requestId, error }, "a request failed");
  return new Refusal("internal", `the server failed; its log names the reason under request id ${requestId}`);
}

function logRequest(parts: HandleParts, exchange: Exchange, status: number, startedAt: number): void {
  const { context, observe } = parts;
  const { entry, message, key, node, requestId } = exchange;
  const route = entry !== undefined && "routes" in entry ? entry.routes[message.method ?? ""] : undefined;
  const name = route?.name ?? "none";
  const elapsedMs = context.clock.monotonic() - startedAt;
  observe({ name, status, seconds: elapsedMs / 1000 });
  const who = key === undefined ? { nodeId: node?.nodeId } : { keyId: key.keyId, tenantId: key.tenantId };
  // The query is left out: it may hold an access token.
  const path = exchange.url.split("?", 1)[0]?.slice(0, 512);
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
