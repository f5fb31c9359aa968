/**
 * What happens to every request, in this order: request id → host, transfer coding → route → key → rate → tenant → scope →
 * open requests → target → body → validate → turn → idempotency → handler → encode → log.
 *
 * Always:
 * - Callers without a key learn nothing: unknown paths also return 401.
 * - Bad input gets a refusal with a reason, never a 500. An error that is not a Refusal is a fault of ours (http/failure.ts).
 * - Every answer carries `x-request-id`.
 * - What a request holds (fairness/admission.ts) is given back at the end of its answer, or of its upgraded connection.
 * - A request that is answered from memory is answered in the round of the event loop in which it came (`after`).
 *
 * A request whose caller goes away has its signal aborted and is logged with status 499.
 */
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import type { Right } from "../auth/access-watch.ts";
import { authenticateKey } from "../auth/authenticate.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import { forHolder } from "../db/holder.ts";
import type { TenantRate } from "../fairness/admission.ts";
import { addressCaller, type Caller, tenantCaller, visitorsOf } from "../fairness/semaphore.ts";
import { authenticate, checkScope, checkTenant, guardOf } from "./authorize.ts";
import { hasBody } from "../http/body.ts";
import { BRIDGE_SILENCE_MS_MAX } from "../fairness/bounds.ts";
import { audited } from "./audit.ts";
import { CheckedRequest } from "./checked-request.ts";
import { encode } from "./encode.ts";
import { type Outgoing, recordOf, send, sendUpgrade } from "../http/answer.ts";
import { after, callerOf, type Exchange, type HandleParts, rawOf } from "./exchange.ts";
import { refusal } from "../http/failure.ts";
import type { AnyHandler, AnyRequest } from "./handler.ts";
import { checkParameters, checkQuery, type Input, receiveBody } from "./input.ts";
import { once } from "./once.ts";
import type { Page } from "./page.ts";
import { PROCESSING_MS, sendProcessing, wantsProcessing } from "./processing.ts";
import { logAnswered } from "../http/request-log.ts";
import { rightOf } from "./right.ts";
import { type Route, routeOf } from "./route-table.ts";
import type { HttpService, Incoming } from "../http/server.ts";
import { checkHandshake } from "../http/upgrade.ts";

const STATUS_CALLER_GONE = 499;
const PROBES: ReadonlySet<string> = new Set(["getLiveness", "getReadiness"]);
/** Refusals of callers who have no key, or whose key is known to be no longer valid. */
const UNPAID: ReadonlySet<string> = new Set(["missing_key", "expired_key"]);

/** What a guest may be asked through the API. */
const BRIDGE_PATH = /^\/v1\/machines\/[^/?]+\/connect\//;

export const apiService = (parts: HandleParts): HttpService => ({
  serve: (incoming) => handle(parts, incoming),
  passesUpgrade: (message) => parts.ingress.owns(message) || BRIDGE_PATH.test(message.url ?? ""),
});

function handle(parts: HandleParts, incoming: Incoming): Promise<void> | void {
  const { message } = incoming;
  const requestId = parts.requestIds(message.headers["x-request-id"]);
  const exchange: Exchange = {
    ...incoming,
    ...parts.find(incoming.url),
    startedAt: parts.context.clock.monotonic(),
    requestId,
    peer: message.socket.remoteAddress,
    headers: ["x-request-id", requestId],
    isForMachine: !incoming.isFromNodes && parts.ingress.owns(message),
    bearer: undefined,
    key: undefined,
    node: undefined,
    share: undefined,
    close: undefined,
    endWork: undefined,
  };
  const answering = answerAlways(parts, exchange, () => answer(parts, exchange));
  if (answering instanceof Promise && wantsProcessing(message)) sendProcessingTo(parts, exchange, answering);
  const recorded = after(answering, (outgoing) => audited(parts, exchange, outgoing));
  return after(recorded, (outgoing) => finish(parts, exchange, outgoing));
}

/** What `work` answers, or the refusal that its error means. Never throws, and never rejects. */
function answerAlways(
  parts: HandleParts,
  exchange: Exchange,
  work: () => Promise<Outgoing> | Outgoing,
): Promise<Outgoing> | Outgoing {
  const refuse = (error: unknown): Outgoing => refusal(parts.context.log, exchange, error);
  try {
    const answering = work();
    return answering instanceof Promise ? answering.catch(refuse) : answering;
  } catch (error) {
    return refuse(error);
  }
}

function sendProcessingTo(
  { context, processingMs = PROCESSING_MS }: HandleParts,
  { response, upgrade, isForMachine }: Exchange,
  answering: Promise<unknown>,
): void {
  if (upgrade !== undefined || isForMachine) return;
  const answered = new AbortController();
  void answering.finally(() => answered.abort());
  void sendProcessing(response, { clock: context.clock, everyMs: processingMs, signal: answered.signal });
}

function finish(parts: HandleParts, exchange: Exchange, outgoing: Outgoing): Promise<void> | void {
  const { message, response, upgrade } = exchange;
  const fail = (error: unknown): never => {
    letGo(exchange);
    throw error;
  };
  const end = (isSent: boolean): void => {
    logRequest(parts, exchange, isSent ? outgoing.status : STATUS_CALLER_GONE);
    // A connection that has become something else is still open.
    if (isSent && outgoing.status === 101 && upgrade !== undefined && !upgrade.socket.closed)
      upgrade.socket.once("close", () => letGo(exchange));
    else letGo(exchange);
    if (hasBody(message) && !message.complete) parts.admission.bodies.leftOver(message, response);
  };
  try {
    const sending = sendOut(exchange, outgoing);
    const isWhole = typeof outgoing.body === "string" && outgoing.body !== "";
    if (isWhole && response.writableLength > 0)
      parts.admission.unread.hold(exchange.key?.tenantId ?? callerOf(parts, exchange).address, response);
    const ending = after(sending, end);
    return ending instanceof Promise ? ending.catch(fail) : ending;
  } catch (error) {
    return fail(error);
  }
}

function letGo(exchange: Exchange): void {
  exchange.share?.letGo();
  exchange.close?.();
  exchange.close = undefined;
  exchange.endWork?.();
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

/** The steps of a request. Each one throws a Refusal or passes it to the next. */
function answer(parts: HandleParts, exchange: Exchange): Promise<Outgoing> | Outgoing {
  checkHost(exchange.message);
  checkTransferCoding(exchange.message);
  if (exchange.isForMachine) return answerForMachine(parts, exchange);
  const route = findRoute(exchange);
  if (exchange.isFromNodes) checkIsForNodes(route);
  if (route === "page" || route?.endpoint.access === "public") return answerPublicly(parts, exchange, route);
  return after(authenticateSlowly(parts, exchange, route), () => serve(parts, exchange, route));
}

/** What needs no key counts for its address. Probes of this server do not: they are answered whatever else the address asks for. */
function answerPublicly(parts: HandleParts, exchange: Exchange, route: Route | "page"): Promise<Outgoing> | Outgoing {
  const serveIt = (): Promise<Outgoing> | Outgoing =>
    route === "page" ? (exchange.entry as Page).answer() : serveWithinRate(parts, exchange, route);
  if (exchange.isFromNodes || (route !== "page" && PROBES.has(route.name))) return serveIt();
  const { presence, startedAt: now } = exchange;
  const from = callerOf(parts, exchange);
  return after(parts.admission.takeFromAddress(from, { now, presence }), () =>
    after(beginWork(parts, exchange, addressCaller(from.address)), serveIt),
  );
}

/** A flood of calls without a valid key is slowed down, although it causes no query. */
function authenticateSlowly(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<void> | void {
  const refuse = async (error: unknown): Promise<never> => {
    const isKnown = error instanceof Refusal && UNPAID.has(error.code);
    if (isKnown) await parts.admission.unauthenticated.refuse(callerOf(parts, exchange), exchange.presence);
    throw error;
  };
  try {
    const authenticating = authenticate(parts, exchange, route);
    return authenticating instanceof Promise ? authenticating.catch(refuse) : authenticating;
  } catch (error) {
    return refuse(error);
  }
}

/** Two readers could understand more than one in two ways. */
function checkHost({ rawHeaders, httpVersionMinor }: IncomingMessage): void {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
  }
  if (hosts > 1) throw new Refusal("invalid_request", "the request has more than one Host header; send one");
  if (hosts === 0 && httpVersionMinor > 0)
    throw new Refusal("invalid_request", "the request has no Host header, which HTTP/1.1 asks for");
}

/** Only `chunked` is taken off here. What another coding made of a body would be taken for the body, here or by a guest. */
function checkTransferCoding({ headers: { "transfer-encoding": coding } }: IncomingMessage): void {
  if (coding === undefined || /^chunked$/i.test(coding)) return;
  const text = "the body has a Transfer-Encoding other than chunked, which is not supported; send it without one";
  throw new Refusal("invalid_request", text, { headers: { connection: "close" } });
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

function checkIsForNodes(route: Route | "page" | undefined): void {
  const access = route === undefined || route === "page" ? undefined : route.endpoint.access;
  if (access === "joinToken" || access === "nodeCredential" || access === "public") return;
  throw new Refusal("not_found", "this address serves only nodes; send API requests to the server's other address");
}

/** The steps that follow when the caller is known. */
function serve(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<Outgoing> | Outgoing {
  const { key, headers, presence, startedAt: now } = exchange;
  if (key === undefined) return serveWithinRate(parts, exchange, routeFor(exchange, route));
  if (route?.endpoint.isUnsupported) headers.push("x-unsupported", route.endpoint.family);
  // Before anything is refused: refusals are recorded, and a flood of them costs as much as one of calls.
  return after(parts.admission.takeRequest(key, "api", { headers, now, presence }), () => {
    const served = routeFor(exchange, route);
    return forHolder(key.tenantId, () => serveWithinRate(parts, exchange, served));
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
  if (handler === undefined)
    throw new Refusal("not_implemented", `${endpoint.method} ${endpoint.path} is not served yet`);
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

/** Waits for a turn, if other tenants ask as well. Nodes do not wait. */
function beginWork({ semaphore }: HandleParts, exchange: Exchange, caller: Caller): Promise<void> | void {
  return after(semaphore.begin(caller), (end) => void (exchange.endWork = end));
}

interface Call {
  readonly route: Route;
  readonly handler: AnyHandler;
  readonly params: AnyRequest["params"];
  readonly query: unknown;
  readonly input: Input;
}

/** Calls the handler: once only, if the request has an idempotency key. */
function call(parts: HandleParts, exchange: Exchange, asked: Call): Promise<Outgoing> | Outgoing {
  const { route, handler, params, query } = asked;
  const { bytes, json } = asked.input;
  const { message, url, key, bearer = "" } = exchange;
  const run = (seed: string | null, stream: Readable): Promise<Outgoing> | Outgoing => {
    const body = bytes === undefined ? stream : json;
    const request = new CheckedRequest(parts, exchange, { params, query, body }, seed);
    return after(handler(request), (reply) => encode(route, reply));
  };
  const { "idempotency-key": idempotencyKey } = message.headers;
  const { method, isBridge } = route.endpoint;
  if (idempotencyKey === undefined || key === undefined || method !== "POST" || isBridge === true)
    return run(null, message);
  const { keyId, tenantId } = key;
  const { context, idempotency: use } = parts;
  const runOnce = (seed: string, stream: Readable) => answerAlways(parts, exchange, () => run(seed, stream));
  const request = { key: String(idempotencyKey), keyId, tenantId, bearer, message, url, bytes, run: runOnce };
  return once({ context, use }, request);
}

async function answerForMachine(parts: HandleParts, exchange: Exchange): Promise<Outgoing> {
  const { admission } = parts;
  const { message, presence, startedAt } = exchange;
  const from = callerOf(parts, exchange);
  await admission.takeFromAddress(from, { now: startedAt, presence });
  const authenticateBearer = async (bearer: string): Promise<KnownKey> => {
    exchange.key = await authenticateKey(parts, bearer, guardOf(parts, exchange));
    return exchange.key;
  };
  const admit = async (right: Right, owner: TenantRate): Promise<void> => {
    presence.admit(parts.access, right);
    const side = exchange.key === undefined ? "ingress" : "api";
    const { headers } = exchange;
    await admission.takeRequest(exchange.key ?? owner, side, { headers, now: startedAt, presence });
    exchange.close = admission.open(owner.tenantId, side);
    // If it has asked the database until now, it counted for its address.
    exchange.endWork?.();
    await beginWork(parts, exchange, visitorsOf(owner.tenantId));
    if (hasBody(message)) admission.bodies.streamed(message, BRIDGE_SILENCE_MS_MAX);
  };
  const pay = async (): Promise<() => void> => {
    await admission.unauthenticated.charge(from, presence);
    return () => admission.unauthenticated.refund(from);
  };
  const caller = addressCaller(from.address);
  const beginForAddress = (): Promise<void> | void => beginWork(parts, exchange, caller);
  const { signal } = presence;
  const raw = rawOf(parts, exchange);
  const request = { raw, signal, authenticate: authenticateBearer, pay, beginForAddress, admit };
  return await forHolder(caller.name, () => parts.ingress.answer(request));
}

function logRequest({ context, observe }: HandleParts, exchange: Exchange, status: number): void {
  const { entry, message, isForMachine, startedAt } = exchange;
  const route = entry !== undefined && "routes" in entry ? routeOf(entry, message.method) : undefined;
  const name = isForMachine ? "ingress" : (route?.name ?? "none");
  const elapsedMs = context.clock.monotonic() - startedAt;
  observe({ name, status, seconds: elapsedMs / 1000 });
  logAnswered(context.log, { ...exchange, name, status, elapsedMs });
}
