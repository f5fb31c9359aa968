/**
 * What happens to every request of the API, in this order: request id → host, transfer coding → route → key →
 * rate → tenant → scope → open requests → target → body → validate → turn → idempotency → handler → encode →
 * log.
 *
 * Always:
 * - Callers without a key learn nothing: unknown paths also return 401.
 * - Bad input gets a refusal with a reason, never a 500.
 * - A request that is answered from memory is answered in the round of the event loop in which it came
 *   (`after`).
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { forHolder } from "../db/holder.ts";
import { addressCaller, tenantCaller } from "../fairness/semaphore.ts";
import type { Outgoing } from "../http/answer.ts";
import {
  after,
  answerAlways,
  beginWork,
  callerOf,
  checkHead,
  finish,
  openRequest,
  refuseSlowly,
} from "../http/request.ts";
import { isReadOrDelete } from "../http/failure.ts";
import type { HttpService, Incoming } from "../http/server.ts";
import { checkHandshake } from "../http/upgrade.ts";
import { audited } from "./audit.ts";
import { authenticate, checkScope, checkTenant } from "./authorize.ts";
import { CheckedRequest } from "./checked-request.ts";
import { encode } from "./encode.ts";
import type { Exchange, HandleParts } from "./exchange.ts";
import type { AnyHandler, AnyRequest } from "./handler.ts";
import { checkParameters, checkQuery, type Input, receiveBody } from "./input.ts";
import { once } from "./once.ts";
import type { Page } from "./page.ts";
import { PROCESSING_MS, sendProcessing, wantsProcessing } from "./processing.ts";
import { rightOf } from "./right.ts";
import { type Route, routeOf } from "./route-table.ts";

const PROBES: ReadonlySet<string> = new Set(["getLiveness", "getReadiness"]);

export const apiService = (parts: HandleParts): HttpService => ({
  serve: (incoming) => handle(parts, incoming),
  passesUpgrade: () => false,
});

function handle(parts: HandleParts, incoming: Incoming): Promise<void> | void {
  const own = { bearer: undefined, hasBegun: false, sent: undefined };
  const exchange: Exchange = { ...openRequest(parts, incoming), ...parts.find(incoming.url), ...own };
  const answering = answerAlways(parts, exchange, () => answer(parts, exchange));
  if (answering instanceof Promise && wantsProcessing(incoming.message)) sendProcessingTo(parts, exchange, answering);
  const recorded = after(answering, (outgoing) => audited(parts, exchange, outgoing));
  return after(recorded, (outgoing) => finish(parts, exchange, { outgoing, name: nameOf(exchange) }));
}

/** The name of the endpoint in the log and in metrics. */
function nameOf({ entry, message }: Exchange): string {
  const route = entry !== undefined && "routes" in entry ? routeOf(entry, message.method) : undefined;
  return route?.name ?? "none";
}

function sendProcessingTo(
  { context, processingMs = PROCESSING_MS }: HandleParts,
  { response, upgrade }: Exchange,
  answering: Promise<unknown>,
): void {
  if (upgrade !== undefined) return;
  const answered = new AbortController();
  void answering.finally(() => answered.abort());
  void sendProcessing(response, { clock: context.clock, everyMs: processingMs, signal: answered.signal });
}

/** The steps of a request. Each one throws a Refusal or passes it to the next. */
function answer(parts: HandleParts, exchange: Exchange): Promise<Outgoing> | Outgoing {
  checkHead(exchange.message);
  const route = findRoute(exchange);
  if (exchange.isFromNodes) checkIsForNodes(route, exchange);
  if (route === "page" || route?.endpoint.access === "public") return answerPublicly(parts, exchange, route);
  const authenticating = refuseSlowly(parts, exchange, () => authenticate(parts, exchange, route));
  return after(authenticating, () => serve(parts, exchange, route));
}

/**
 * What needs no key counts for its address. Probes of this server do not: they are answered whatever else the
 * address asks for.
 */
function answerPublicly(parts: HandleParts, exchange: Exchange, route: Route | "page"): Promise<Outgoing> | Outgoing {
  const serveIt = (): Promise<Outgoing> | Outgoing =>
    route === "page" ? (exchange.entry as Page).answer(exchange.message) : serveWithinRate(parts, exchange, route);
  if (exchange.isFromNodes || (route !== "page" && PROBES.has(route.name))) return serveIt();
  const { presence, startedAt: now } = exchange;
  const from = callerOf(parts, exchange);
  return after(parts.admission.takeFromAddress(from, { now, presence }), () =>
    after(beginWork(parts, exchange, addressCaller(from.address)), serveIt),
  );
}

/** undefined: no such path, or not with this method; only callers with a key learn which of the two. */
function findRoute({ entry, message }: Exchange): Route | "page" | undefined {
  if (entry === undefined) return undefined;
  if ("answer" in entry) {
    if (entry.isFor?.(message) === false) return undefined;
    if (message.method === "GET" || message.method === "HEAD") return "page";
    throw new Refusal("method_not_allowed", "this path only serves GET", { headers: { allow: "GET, HEAD" } });
  }
  const route = routeOf(entry, message.method);
  if (route !== undefined) return route;
  const isPublic = Object.values(entry.routes).some((other) => other.endpoint.access === "public");
  if (isPublic) throw unroutable({ entry, message });
  return undefined;
}

function unroutable({ entry, message }: Pick<Exchange, "entry" | "message">): Refusal {
  if (entry === undefined || "answer" in entry)
    return new Refusal("not_found", "no such path", { resource: { kind: "path" } });
  const text = `${message.method} is not served on this path; it serves ${entry.allow}`;
  return new Refusal("method_not_allowed", text, { headers: { allow: entry.allow } });
}

/** Strangers can reach the listener for nodes of other hosts. */
function checkIsForNodes(route: Route | "page" | undefined, { peer, certificate }: Exchange): void {
  const access = route === undefined || route === "page" ? undefined : route.endpoint.access;
  const isStranger = peer !== undefined && certificate === null;
  if (access === "joinToken" || access === "nodeCredential" || (access === "public" && !isStranger)) return;
  throw new Refusal("not_found", "this address serves only nodes; send API requests to the server's other address");
}

/** The steps that follow when the caller is known. */
function serve(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<Outgoing> | Outgoing {
  const { key, headers, presence, startedAt: now } = exchange;
  if (key === undefined) {
    const nodeId = exchange.node?.nodeId ?? null;
    const taking = nodeId === null ? undefined : parts.admission.takeFromNode(nodeId, { now, presence });
    return after(taking, () => serveWithinRate(parts, exchange, routeFor(exchange, route)));
  }
  if (route?.endpoint.isUnsupported) headers.push("x-unsupported", route.endpoint.family);
  // Before anything is refused: refusals are recorded, and a flood of them costs as much as one of calls.
  return after(parts.admission.takeRequest(key, "api", { headers, now, presence }), () => {
    const served = routeFor(exchange, route);
    return forHolder(key.tenantId, () => serveWithinRate(parts, exchange, served), {
      makes: !isReadOrDelete(exchange.message),
    });
  });
}

/** Throws a Refusal if the path is not served, or not to this caller. */
function routeFor(exchange: Exchange, route: Route | undefined): Route {
  checkTenant(route, exchange.key);
  if (route === undefined) throw unroutable(exchange);
  checkScope(route, exchange.key);
  return route;
}

function serveWithinRate(parts: HandleParts, exchange: Exchange, route: Route): Promise<Outgoing> | Outgoing {
  const { key, presence } = exchange;
  const { admission } = parts;
  const { endpoint, handler } = route;
  if (handler === undefined) throw new Refusal("not_implemented", `${endpoint.method} ${route.path} is not served yet`);
  if (endpoint.isUpgrade) checkHandshake(exchange.upgrade);
  const params = checkParameters(exchange.params, route);
  if (key !== undefined) presence.admit(parts.access, rightOf(endpoint, key, params["id"]));
  const query = checkQuery(exchange.url, route);
  if (key !== undefined) exchange.close = admission.open(key.tenantId, "api");
  return after(receiveBody(parts, exchange, route, params), (input) =>
    after(key && beginWork(parts, exchange, tenantCaller(key.tenantId)), () =>
      call(parts, exchange, { route, handler, params, query, input }),
    ),
  );
}

interface Call {
  readonly route: Route;
  readonly handler: AnyHandler;
  readonly params: AnyRequest["params"];
  readonly query: unknown;
  readonly input: Input;
}

/** Calls the handler: once only, if the request has an idempotency key. */
function call(parts: HandleParts, exchange: Exchange, match: Call): Promise<Outgoing> | Outgoing {
  const { route, handler, params, query } = match;
  const { bytes, json } = match.input;
  const { message, url, key, bearer = "" } = exchange;
  const run = (seed: string | null, stream: Readable): Promise<Outgoing> | Outgoing => {
    const body = bytes === undefined ? stream : json;
    exchange.hasBegun = true;
    const request = new CheckedRequest(parts, exchange, { params, query, body }, seed);
    return after(handler(request), (reply) => encode(route, reply));
  };
  const { "idempotency-key": idempotencyKey } = message.headers;
  if (idempotencyKey === undefined || key === undefined || route.endpoint.method !== "POST") return run(null, message);
  const { keyId, tenantId } = key;
  const { context, idempotency: use } = parts;
  const runOnce = (seed: string, stream: Readable) => answerAlways(parts, exchange, () => run(seed, stream));
  const request = { key: String(idempotencyKey), keyId, tenantId, bearer, message, url, bytes, run: runOnce };
  return once({ context, use }, request);
}
