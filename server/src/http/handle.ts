/**
 * What happens to every request, in this order: request id → host → route → key → tenant → scope → rate → open requests →
 * target → body → validate → idempotency → handler → encode → log.
 *
 * Always:
 * - who has no key learns nothing: a path that does not exist answers 401 like any other;
 * - whatever a caller sends, it gets a refusal with a reason and never a 500; what is thrown and is not a Refusal is a
 *   fault of ours, and its message goes to the log only;
 * - every answer carries `x-request-id`;
 * - what a request holds (admission.ts) is given back at the end of its answer, or of its upgraded connection;
 * - a large body is read only for a target that exists and is the caller's.
 *
 * A request whose caller goes away has its signal aborted and is logged with status 499.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type { Log } from "@flotilla/base/log";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { Refusal } from "@flotilla/contract/errors";
import type { IdKind } from "@flotilla/contract/ids";
import { JSON_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { grants } from "@flotilla/contract/scopes";
import type { AccessWatch, Right } from "../auth/access-watch.ts";
import {
  authenticateConnectToken,
  authenticateKey,
  authenticateNode,
  bearerOf,
  type ConnectTokenAuthenticator,
  type NodeAuthenticator,
} from "../auth/authenticate.ts";
import type { Caller, Guard, NodeCaller } from "../auth/caller.ts";
import type { KeyCache, KnownKey } from "../auth/key-cache.ts";
import { hasConnectTokenForm } from "../auth/keys.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Context } from "../context.ts";
import { DatabaseFull, DatabaseUnavailable } from "../db/database.ts";
import type { Admission, TenantRate } from "./admission.ts";
import { type BodyShare, bodyOf, CallerGone, hasBody, NOTHING, readBody } from "./body.ts";
import { BRIDGE_SILENCE_MS_MAX, STREAM_SILENCE_MS_MAX, UNSEEN_BODY_BYTES_MAX } from "./bounds.ts";
import type { CallerAddress } from "./caller-address.ts";
import type { CallerPresence } from "./caller-presence.ts";
import { encode, type HeaderList, type Outgoing, recordOf, send, sendUpgrade } from "./encode.ts";
import type { AnyHandler, AnyRequest, RawRequest } from "./handler.ts";
import type { IdempotencyUse } from "./idempotency-use.ts";
import type { Ingress } from "./ingress.ts";
import { parseJson } from "./json.ts";
import { LARGE_JSON_BYTES } from "./large-json.ts";
import type { LastReaders } from "./last-readers.ts";
import { bytesFromSeed, idFromSeed, once } from "./once.ts";
import type { Page } from "./page.ts";
import { PROCESSING_MS, sayProcessing, wantsProcessing } from "./processing.ts";
import { coerceQuery } from "./query.ts";
import { errorAnswer } from "./refuse.ts";
import type { RequestIds } from "./request-id.ts";
import { logAnswered } from "./request-log.ts";
import { isOperation, rightOf } from "./right.ts";
import type { PathEntry, Route } from "./route-table.ts";
import { checkHandshake, type Upgrade } from "./upgrade.ts";

/** undefined: there is nothing to look for. */
export type FindTarget = (
  endpoint: Endpoint,
  params: Readonly<Record<string, string>>,
  tenantId: string,
) => Promise<void> | undefined;

export interface HandleParts {
  readonly context: Context;
  readonly keys: KeyCache;
  readonly access: AccessWatch;
  readonly lastUsed: LastUsed;
  readonly nodes: NodeAuthenticator;
  readonly connectTokens: ConnectTokenAuthenticator;
  readonly ingress: Ingress;
  readonly admission: Admission;
  readonly readers: LastReaders;
  readonly idempotency: IdempotencyUse;
  /** Throws a Refusal when what the path names does not exist or is not the tenant's; for requests with large bodies. */
  readonly findTarget: FindTarget;
  readonly requestIds: RequestIds;
  /** In place of PROCESSING_MS. For tests. */
  readonly processingMs?: number | undefined;
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
  /** It came over the listener that is for nodes alone. */
  readonly isFromNodes: boolean;
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
  /** What it holds until its end. */
  share: BodyShare | undefined;
  close: (() => void) | undefined;
}

const STATUS_CALLER_GONE = 499;
const PARAMETER_CHARACTERS_MAX = 256;

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
    isForMachine: !incoming.isFromNodes && parts.ingress.owns(message),
    bearer: undefined,
    key: undefined,
    node: undefined,
    share: undefined,
    close: undefined,
  };
  const refuse = (error: unknown): Outgoing => refusal(parts, exchange, error);
  let answering: Outgoing | Promise<Outgoing>;
  try {
    answering = answer(parts, exchange);
  } catch (error) {
    answering = refuse(error);
  }
  if (!(answering instanceof Promise)) return finish(parts, exchange, answering);
  const waiting = answering.catch(refuse);
  if (wantsProcessing(message)) tellOfProcessing(parts, exchange, waiting);
  return waiting.then((outgoing) => finish(parts, exchange, outgoing));
}

function tellOfProcessing(
  { context, processingMs = PROCESSING_MS }: HandleParts,
  { response, upgrade, isForMachine }: Exchange,
  answering: Promise<unknown>,
): void {
  if (upgrade !== undefined || isForMachine) return;
  const answered = new AbortController();
  void answering.finally(() => answered.abort());
  void sayProcessing(response, { clock: context.clock, everyMs: processingMs, signal: answered.signal });
}

function finish(parts: HandleParts, exchange: Exchange, outgoing: Outgoing): Promise<void> | undefined {
  const { message, response, upgrade } = exchange;
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
    if (sending instanceof Promise)
      return sending.then(end).catch((error: unknown) => {
        letGo(exchange);
        throw error;
      });
    end(sending);
    return undefined;
  } catch (error) {
    letGo(exchange);
    throw error;
  }
}

function letGo(exchange: Exchange): void {
  exchange.share?.letGo();
  exchange.close?.();
  exchange.close = undefined;
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
  checkHost(exchange.message);
  if (exchange.isForMachine) return answerForMachine(parts, exchange);
  const route = findRoute(exchange);
  if (exchange.isFromNodes) checkIsForNodes(route);
  if (route === "page") return (exchange.entry as Page).answer();
  const asking = route?.endpoint.access === "public" ? undefined : authenticate(parts, exchange, route);
  return asking === undefined ? serve(parts, exchange, route) : asking.then(() => serve(parts, exchange, route));
}

/** More than one could be understood in two ways by two readers. */
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

function checkIsForNodes(route: Route | "page" | undefined): void {
  const access = route === undefined || route === "page" ? undefined : route.endpoint.access;
  if (access === "joinToken" || access === "nodeCredential" || access === "public") return;
  throw new Refusal("not_found", "this address serves nodes only; the API has another one");
}

/** The steps that follow when it is known who asks. */
function serve(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<Outgoing> | Outgoing {
  const { key, message } = exchange;
  checkTenant(route, key);
  if (route === undefined) throw unroutable(exchange);
  checkScope(route, key);
  if (key !== undefined) takeRequest(parts, exchange, key);
  const { endpoint, handler } = route;
  if (handler === undefined)
    throw new Refusal("not_implemented", `${endpoint.method} ${endpoint.path} is not served yet`);
  if (endpoint.isUpgrade) checkHandshake(exchange.upgrade);
  const params = checkParameters(exchange.params, route);
  if (exchange.key !== undefined)
    exchange.presence.admit(parts.access, rightOf(route.endpoint, exchange.key, params["id"]));
  const query = checkQuery(exchange.url, route);
  if (key !== undefined) exchange.close = parts.admission.open(key.tenantId, "api");
  const call = (bytes: Buffer | undefined, json: unknown): Promise<Outgoing> | Outgoing => {
    const parsed = endpoint.body?.kind === "json" ? bodyOf(json, endpoint.body, route.checkBody) : undefined;
    const run = (seed: string | null, stream: Readable) => {
      const body = bytes === undefined ? stream : parsed;
      return runHandler(route, handler, new CheckedRequest(parts, exchange, { params, query, body }, seed));
    };
    const { "idempotency-key": idempotencyKey } = message.headers;
    const isOnce = idempotencyKey !== undefined && key !== undefined && endpoint.method === "POST";
    if (!isOnce || endpoint.isBridge === true) return run(null, message);
    const runOnce = async (seed: string, stream: Readable): Promise<Outgoing> => {
      try {
        return await run(seed, stream);
      } catch (error) {
        return refusal(parts, exchange, error);
      }
    };
    const { keyId, tenantId } = key;
    const { bearer = "" } = exchange;
    const { context, idempotency: use } = parts;
    const request = { key: String(idempotencyKey), keyId, tenantId, bearer, message, url: exchange.url, bytes };
    return once({ context, use }, { ...request, run: runOnce });
  };
  const parse = (bytes: Buffer | undefined): Promise<Outgoing> | Outgoing => {
    // An endpoint without a declared body takes and ignores one: clients send `{}`.
    if (bytes === undefined || endpoint.body?.kind !== "json") return call(bytes, undefined);
    if (key === undefined || bytes.byteLength < LARGE_JSON_BYTES) return call(bytes, parseJson(bytes));
    // Its bytes are compared with those of another request under the same idempotency key.
    const isKept = message.headers["idempotency-key"] !== undefined;
    return parts.admission.largeJson.parse(key.tenantId, bytes, { isKept }).then((json) => call(bytes, json));
  };
  const read = (): Promise<Outgoing> | Outgoing => {
    const reading = bytesOf(parts, exchange, route);
    return reading instanceof Promise ? reading.then(parse) : parse(reading);
  };
  const isUnseen = key !== undefined && endpoint.body?.kind === "json" && isLarge(message, endpoint.body.maxBytes);
  const finding = isUnseen ? parts.findTarget(endpoint, params, key.tenantId) : undefined;
  return finding === undefined ? read() : finding.then(read);
}

/** Larger than what comes with the head, mostly; so is what does not say how large it is. What is too large is not held. */
function isLarge({ headers }: IncomingMessage, maxBytes = JSON_BODY_BYTES_MAX): boolean {
  if (headers["transfer-encoding"] !== undefined) return true;
  const length = Number(headers["content-length"] ?? 0);
  return length >= UNSEEN_BODY_BYTES_MAX && length <= maxBytes;
}

function runHandler(route: Route, handler: AnyHandler, request: AnyRequest): Promise<Outgoing> | Outgoing {
  const replying = handler(request);
  return replying instanceof Promise ? replying.then((reply) => encode(route, reply)) : encode(route, replying);
}

function answerForMachine(parts: HandleParts, exchange: Exchange): Promise<Outgoing> {
  const { admission } = parts;
  const { message, presence, startedAt } = exchange;
  const from = callerOf(parts, exchange);
  admission.takeFromAddress(from, startedAt);
  const authenticate = async (bearer: string): Promise<KnownKey> => {
    exchange.key = await authenticateKey(parts, bearer, guardOf(parts, exchange));
    return exchange.key;
  };
  const admit = (right: Right, owner: TenantRate): void => {
    presence.admit(parts.access, right);
    const side = exchange.key === undefined ? "ingress" : "api";
    admission.takeRequest(exchange.key ?? owner, side, { headers: exchange.headers, now: startedAt });
    exchange.close = admission.open(owner.tenantId, side);
    if (hasBody(message)) admission.bodies.streamed(message, BRIDGE_SILENCE_MS_MAX);
  };
  const { strangers } = admission;
  const pay = (): (() => void) => {
    strangers.pay(from);
    return () => strangers.repay(from);
  };
  return parts.ingress.answer({ raw: exchange, signal: presence.signal, authenticate, pay, admit });
}

const callerOf = ({ admission }: HandleParts, { message }: Exchange): CallerAddress =>
  admission.proxies.callerOf(message.socket.remoteAddress, textOf(message.headers["x-forwarded-for"]));

const textOf = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header.join(",") : header;

/** What stands before a query for a credential. */
const guardOf =
  (parts: HandleParts, exchange: Exchange): Guard =>
  (name, read) =>
    exchange.isFromNodes ? read() : parts.admission.strangers.ask(callerOf(parts, exchange), name, read);

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
  const guard = guardOf(parts, exchange);
  exchange.bearer = bearerOf(exchange.message.headers.authorization);
  const { isUpgrade, isBridge } = route?.endpoint ?? {};
  if (exchange.bearer === undefined && (isUpgrade || (isBridge && exchange.upgrade !== undefined)))
    exchange.bearer = searchOf(exchange.url).get("access_token") ?? undefined;
  if (access === "joinToken" || access === "nodeCredential") {
    const asking = authenticateNode(parts.nodes, exchange.bearer, access, guard);
    return asking.then((node) => void (exchange.node = node));
  }
  if (isBridge && hasConnectTokenForm(exchange.bearer)) {
    const asking = authenticateConnectToken(parts.connectTokens, exchange.bearer, {
      machineId: exchange.params["id"] ?? "",
      guard,
    });
    return asking.then((key) => void (exchange.key = key));
  }
  const key = authenticateKey(parts, exchange.bearer, guard);
  if (route?.endpoint.worksWithoutDatabase === true) return withoutDatabase(parts, exchange, key);
  if (key instanceof Promise) return key.then((known) => void (exchange.key = known));
  exchange.key = key;
  return undefined;
}

/** A key that read the same before may go on while the database does not answer for it. */
async function withoutDatabase(
  { context, readers }: HandleParts,
  exchange: Exchange,
  asked: KnownKey | Promise<KnownKey>,
): Promise<void> {
  const { bearer = "" } = exchange;
  try {
    exchange.key = await asked;
  } catch (error) {
    if (!(error instanceof DatabaseUnavailable)) throw error;
    exchange.key = readers.find(bearer, context.clock.now());
    if (exchange.key === undefined) throw error;
    return;
  }
  readers.note(bearer, exchange.key);
}

function checkScope({ endpoint: { access } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || typeof access === "string") return;
  if (!access.some((scope) => grants(key.scopes, scope)))
    throw new Refusal("missing_scope", `missing scope: ${access.join(" or ")}`);
}

/** Before all else that a key may meet. An operator's still reaches what only operators do: the way to end a suspension. */
function checkTenant(route: Route | undefined, key: KnownKey | undefined): void {
  if (key === undefined || !key.isSuspended) return;
  const access = route?.endpoint.access;
  if (access === undefined || !isOperation(access) || !key.isAdmin)
    throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
}

function takeRequest({ admission }: HandleParts, { headers, startedAt }: Exchange, key: KnownKey): void {
  admission.takeRequest(key, "api", { headers, now: startedAt });
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
  readonly #context: Context;
  readonly #seed: string | null;
  readonly #bearer: string;
  #secretBytes: CheckedRequest["secretBytes"] | undefined;

  /** `seed`: of its idempotency key; null: it has none. */
  constructor(
    { context }: HandleParts,
    exchange: Exchange,
    { params, query, body }: Pick<AnyRequest, "params" | "query" | "body">,
    seed: string | null,
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
    this.#context = context;
    this.#seed = seed;
    this.#bearer = exchange.bearer ?? "";
  }

  get signal(): AbortSignal {
    return this.#presence.signal;
  }

  get log(): Log {
    return this.#context.log.child({ requestId: this.requestId });
  }

  newId(kind: IdKind): string {
    return this.#seed === null ? this.#context.ids.make(kind) : idFromSeed(this.#seed, kind);
  }

  get secretBytes(): (size: number) => Buffer {
    return (this.#secretBytes ??=
      this.#seed === null ? this.#context.randomBytes : bytesFromSeed(this.#seed, this.#bearer));
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
function bytesOf(parts: HandleParts, exchange: Exchange, route: Route): Promise<Buffer> | Buffer | undefined {
  const { message, key, node } = exchange;
  const { body: declared, isBridge } = route.endpoint;
  const { admission } = parts;
  if (declared?.kind === "bytes" || isBridge === true) {
    if (hasBody(message)) admission.bodies.streamed(message, isBridge ? BRIDGE_SILENCE_MS_MAX : STREAM_SILENCE_MS_MAX);
    return undefined;
  }
  if (!hasBody(message)) return NOTHING;
  const share = admission.shareOf(key ?? node ?? { nodeId: null });
  exchange.share = share;
  return readBody(message, { maxBytes: declared?.maxBytes ?? JSON_BODY_BYTES_MAX, share, watch: admission.bodies });
}

function refusal(parts: HandleParts, exchange: Exchange, error: unknown): Outgoing {
  return errorAnswer(asRefusal(parts, exchange, error), exchange.message.headers.accept, exchange.requestId);
}

const DISK_FULL =
  "the server's disk is full, so nothing can be written; delete machines or images, or ask its operator for room, then try again";

function asRefusal({ context }: HandleParts, { requestId, presence }: Exchange, error: unknown): Refusal {
  // Whatever failed, it did because the caller's right has ended. The rest of a body is not waited for.
  if (presence.lost !== undefined)
    return new Refusal(presence.lost.code, presence.lost.message, { connection: "close" });
  if (error instanceof Refusal) return error;
  if (error instanceof DatabaseFull) {
    context.log.error({ requestId, reason: error.message }, "a request found the disk full");
    return new Refusal("unavailable", DISK_FULL, { "retry-after": "10" });
  }
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

function logRequest({ context, observe }: HandleParts, exchange: Exchange, status: number): void {
  const { entry, message, isForMachine, startedAt } = exchange;
  const route = entry !== undefined && "routes" in entry ? entry.routes[message.method ?? ""] : undefined;
  const name = isForMachine ? "ingress" : (route?.name ?? "none");
  const elapsedMs = context.clock.monotonic() - startedAt;
  observe({ name, status, seconds: elapsedMs / 1000 });
  logAnswered(context.log, { ...exchange, name, status, elapsedMs });
}
