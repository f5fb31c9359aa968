/**
 * A request from its arrival to the end of its answer: what every pipeline does with one, whatever it serves.
 *
 * Always:
 * - Every answer carries `x-request-id`, and each request is logged once.
 * - What a request holds (fairness/admission.ts) is given back at the end of its answer, or of its upgraded
 *   connection.
 * - An error that is not a Refusal is a fault of ours (failure.ts).
 *
 * A request whose caller goes away has its signal aborted and is logged with status 499.
 */
import type { IncomingMessage } from "node:http";
import { Refusal } from "@flotilla/contract/errors";
import type { Guard, NodeCaller } from "../auth/caller.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import type { Context } from "../context.ts";
import { forHolder } from "../db/holder.ts";
import type { Admission } from "../fairness/admission.ts";
import type { BodyShare } from "../fairness/body-share.ts";
import type { CallerAddress } from "../fairness/caller-address.ts";
import { addressCaller, type Caller, type FairSemaphore } from "../fairness/semaphore.ts";
import { type HeaderList, type Outgoing, type RawRequest, recordOf, send, sendUpgrade } from "./answer.ts";
import { hasBody } from "./body.ts";
import { refusal } from "./failure.ts";
import { sendInterim } from "./interim.ts";
import type { RequestIds } from "./request-id.ts";
import { logAnswered } from "./request-log.ts";
import type { Incoming } from "./server.ts";
import { type Way, wayOf } from "./way.ts";

export interface RequestParts {
  readonly context: Pick<Context, "clock" | "log">;
  readonly admission: Admission;
  readonly semaphore: FairSemaphore;
  readonly requestIds: RequestIds;
  /** Called once per answered request. */
  readonly observe: (seen: { readonly name: string; readonly status: number; readonly seconds: number }) => void;
}

/** What is learned about a request on its way, for the log and for the headers of the answer. */
export interface OpenRequest extends Incoming {
  /** By the monotonic clock. */
  readonly startedAt: number;
  readonly requestId: string;
  /**
   * The address of the connection; undefined: it is a UNIX socket's. Kept: a body that was passed on takes
   * the socket along.
   */
  readonly peer: string | undefined;
  readonly headers: HeaderList;
  key: KnownKey | undefined;
  node: NodeCaller | undefined;
  /** What its body holds of the memory, until its end. */
  share: BodyShare | undefined;
  /** What the log says of it besides. */
  details: Readonly<Record<string, string | number>>;
  /** Called once, when it was answered. */
  onAnswered: ((seen: { readonly status: number; readonly seconds: number }) => void) | undefined;
  /** Ends its place among the open requests. */
  close: (() => void) | undefined;
  /** Ends its place among the requests at work. */
  endWork: (() => void) | undefined;
}

const STATUS_CALLER_GONE = 499;
/** Refusals of callers who have no key, or whose key is known to be no longer valid. */
const UNCHARGED: ReadonlySet<string> = new Set(["missing_key", "expired_key"]);

export function openRequest({ context, requestIds }: RequestParts, incoming: Incoming): OpenRequest {
  const { message } = incoming;
  const requestId = requestIds(message.headers["x-request-id"]);
  return {
    ...incoming,
    startedAt: context.clock.monotonic(),
    requestId,
    peer: message.socket.remoteAddress,
    headers: ["x-request-id", requestId],
    key: undefined,
    node: undefined,
    share: undefined,
    details: {},
    onAnswered: undefined,
    close: undefined,
    endWork: undefined,
  };
}

/**
 * Continues with the value: at once when it is known, later when it is promised. Most requests are answered
 * from memory, and a promise per step would cost them as much as the rest of the way.
 */
export function after<T, U>(value: T | Promise<T>, proceed: (value: T) => U | Promise<U>): U | Promise<U> {
  return value instanceof Promise ? value.then(proceed) : proceed(value);
}

/** What `work` returns; where it throws or rejects, what `recover` does. */
function orElse<T>(work: () => T | Promise<T>, recover: (error: unknown) => T | Promise<T>): T | Promise<T> {
  try {
    const working = work();
    return working instanceof Promise ? working.catch(recover) : working;
  } catch (error) {
    return recover(error);
  }
}

/** What `work` answers, or the refusal that its error means. Never throws, and never rejects. */
export const answerAlways = (
  { context }: Pick<RequestParts, "context">,
  request: OpenRequest,
  work: () => Promise<Outgoing> | Outgoing,
): Promise<Outgoing> | Outgoing => orElse(work, (error) => refusal(context.log, request, error));

/** Throws a Refusal for a head that two readers could understand in two ways. */
export function checkHead(message: IncomingMessage): void {
  checkHost(message);
  checkTransferCoding(message);
}

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

/**
 * Only `chunked` is taken off here. What another coding made of a body would be taken for the body, here or
 * by a guest.
 */
function checkTransferCoding({ headers: { "transfer-encoding": coding } }: IncomingMessage): void {
  if (coding === undefined || /^chunked$/i.test(coding)) return;
  const text = "the body has a Transfer-Encoding other than chunked, which is not supported; send it without one";
  throw new Refusal("invalid_request", text, { headers: { connection: "close" } });
}

export const callerOf = (
  { admission }: Pick<RequestParts, "admission">,
  { message, peer }: OpenRequest,
): CallerAddress => admission.proxies.callerOf(peer, textOf(message.headers["x-forwarded-for"]));

const textOf = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header.join(",") : header;

export const rawOf = (
  { admission }: Pick<RequestParts, "admission">,
  { message, response, url, upgrade, peer }: OpenRequest,
): RawRequest => ({
  ...{ message, url, upgrade, isFromProxy: peer === undefined || admission.proxies.has(peer) },
  sendInterim: (status, head) => sendInterim(response, status, head),
});

/** Whether others could read the request on its way. */
export const wayOfRequest = ({ admission }: Pick<RequestParts, "admission">, { message, peer }: OpenRequest): Way =>
  wayOf({
    peer,
    isFromProxy: peer === undefined || admission.proxies.has(peer),
    forwardedFor: textOf(message.headers["x-forwarded-for"]),
    forwardedProto: textOf(message.headers["x-forwarded-proto"]),
  });

/** The parameters of a URL. */
export const searchOf = (url: string): URLSearchParams => {
  const at = url.indexOf("?");
  return new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
};

/**
 * Precedes every query for a credential: callers from one address share a rate of unknown ones, and a turn.
 */
export const guardOf =
  (parts: RequestParts, request: OpenRequest): Guard =>
  async (name, read) => {
    const from = callerOf(parts, request);
    return await parts.admission.unauthenticated.ask({ from, name, presence: request.presence }, async () => {
      const caller = addressCaller(from.address);
      const end = await parts.semaphore.begin(caller);
      return await forHolder(caller.name, read).finally(end);
    });
  };

/**
 * Does the work of authenticating. A flood of calls without a valid key is slowed down, although it causes no
 * query.
 */
export const refuseSlowly = <T>(
  parts: RequestParts,
  request: OpenRequest,
  work: () => T | Promise<T>,
): T | Promise<T> =>
  orElse(work, async (error) => {
    const isKnown = error instanceof Refusal && UNCHARGED.has(error.code);
    if (isKnown) await parts.admission.unauthenticated.refuse(callerOf(parts, request), request.presence);
    throw error;
  });

/** Waits for a turn, if other tenants ask as well. */
export const beginWork = ({ semaphore }: RequestParts, request: OpenRequest, caller: Caller): Promise<void> | void =>
  after(semaphore.begin(caller), (end) => void (request.endWork = end));

/** Sends the answer, logs the request under the name, and gives back what it held. */
export function finish(
  parts: RequestParts,
  request: OpenRequest,
  { outgoing, name }: { readonly outgoing: Outgoing; readonly name: string },
): Promise<void> | void {
  const { message, response, upgrade } = request;
  const fail = (error: unknown): never => {
    release(request);
    throw error;
  };
  const end = (isSent: boolean): void => {
    log(parts, request, { name, status: isSent ? outgoing.status : STATUS_CALLER_GONE });
    // A connection that has become something else is still open.
    if (isSent && outgoing.status === 101 && upgrade !== undefined && !upgrade.socket.closed)
      upgrade.socket.once("close", () => release(request));
    else release(request);
    if (hasBody(message) && !message.complete) parts.admission.bodies.leftOver(message, response);
  };
  return orElse(() => {
    const sending = sendOut(request, outgoing);
    const isWhole = typeof outgoing.body === "string" && outgoing.body !== "";
    if (isWhole && response.writableLength > 0)
      parts.admission.unread.hold(request.key?.tenantId ?? callerOf(parts, request).address, response);
    return after(sending, end);
  }, fail);
}

function release(request: OpenRequest): void {
  request.share?.release();
  request.close?.();
  request.close = undefined;
  request.endWork?.();
}

function sendOut(
  { message, response, upgrade, headers, presence }: OpenRequest,
  outgoing: Outgoing,
): Promise<boolean> | boolean {
  if (outgoing.sendAnswer !== undefined) return outgoing.sendAnswer(response, recordOf(headers));
  if (upgrade !== undefined && outgoing.upgrade !== undefined)
    return sendUpgrade(upgrade, response, { ...recordOf(headers), ...outgoing.headers }, outgoing.upgrade);
  return send({ message, response, presence }, headers, outgoing);
}

function log(
  { context, observe }: RequestParts,
  request: OpenRequest,
  { name, status }: { readonly name: string; readonly status: number },
): void {
  const elapsedMs = context.clock.monotonic() - request.startedAt;
  const seconds = elapsedMs / 1000;
  observe({ name, status, seconds });
  request.onAnswered?.({ status, seconds });
  logAnswered(context.log, { ...request, name, status, elapsedMs });
}
