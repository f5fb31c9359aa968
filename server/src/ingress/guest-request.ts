/**
 * One HTTP request to a guest on one connection, up to the head of the answer.
 *
 * Always: the guest is hostile. What is not HTTP, a head larger than HEAD_BYTES_MAX, and no answer within
 * ANSWER_MS_MAX of the request's end are refusals with 502. Answers before the final one (1xx) are passed on
 * where they may be, to callers by a host name; more than INTERIM_ANSWERS_MAX are a refusal too, because each
 * costs the server as much as an answer.
 *
 * Node's own HTTP client speaks over the connection: it streams both bodies, frames them again and accepts
 * upgrades. It parses heads as leniently as browsers and curl, lines without a carriage return included; an
 * answer that is ambiguous to the caller is refused (head.ts).
 */
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { hasBody } from "../http/body.ts";
import type { RawRequest } from "../http/answer.ts";
import { passBody } from "../link/pass-body.ts";
import type { GuestConnection } from "./guest-connection.ts";
import { answerHead, faultOfAnswer, requestHead, trailersOf } from "./head.ts";

const HEAD_BYTES_MAX = 64 * 1024;
/** Long enough for a long poll. */
const ANSWER_MS_MAX = 5 * 60_000;
const INTERIM_ANSWERS_MAX = 100;

export interface GuestRequest {
  readonly raw: RawRequest;
  readonly machineId: string;
  /** Path and query for the guest. */
  readonly path: string;
  /** The path under which the caller sees the guest's root. */
  readonly prefix: string;
}

export interface GuestAnswer {
  readonly message: IncomingMessage;
  /** The connection, if it has become something else. */
  readonly upgraded: Duplex | null;
}

/**
 * The connection was closed before any byte of the answer arrived: the guest may not have read the request.
 */
export class Unanswered extends Refusal {}

const REPEATABLE_METHODS: ReadonlySet<string | undefined> = new Set(["GET", "HEAD", "OPTIONS"]);

/** Whether a request may be sent a second time: a safe method without a body (RFC 9110, 9.2.1). */
const isRepeatable = ({ message, upgrade }: RawRequest): boolean =>
  upgrade === undefined && !hasBody(message) && REPEATABLE_METHODS.has(message.method);

/**
 * Whether it may be sent on a connection that waited and that the guest may be closing, and leaves its own
 * for another request. Where the answer to HEAD ends is not certain (answer-frame.ts).
 */
export const mayReuse = (raw: RawRequest): boolean => isRepeatable(raw) && raw.message.method !== "HEAD";

/** Throws a Refusal; Unanswered only for a request that is repeatable. */
export async function ask(
  connection: GuestConnection,
  asked: GuestRequest,
  clock: Pick<Clock, "timer">,
): Promise<GuestAnswer> {
  const { raw } = asked;
  const request = open(connection, asked);
  const { promise, resolve, reject } = Promise.withResolvers<GuestAnswer>();
  const textOf = (why: string): string =>
    `the program that listens in machine ${asked.machineId} gave no answer: ${why}`;
  const fail = (why: string): void => reject(new Refusal("guest_unreachable", textOf(why)));
  const failClosed = (why: string): void => {
    if (!isRepeatable(raw) || connection.frame.hasBegun) fail(why);
    else reject(new Unanswered("guest_unreachable", textOf(why)));
  };
  request.once("response", (message) => {
    // The parser accepts any three digits as a status.
    const fault = faultOfAnswer(message.rawHeaders);
    if ((message.statusCode ?? 0) < 200) fail(`it answers with status ${message.statusCode}`);
    else if (fault !== null) fail(fault);
    else {
      breakWith(connection, message);
      resolve({ message, upgraded: null });
    }
  });
  if (raw.upgrade !== undefined)
    request.once("upgrade", (message, socket, head) => {
      const fault = faultOfAnswer(message.rawHeaders);
      if (fault !== null) return fail(fault);
      if (head.byteLength > 0) socket.unshift(head);
      resolve({ message, upgraded: socket });
    });
  let interim = 0;
  request.on("information", ({ statusCode, rawHeaders }) => {
    interim += 1;
    if (interim > INTERIM_ANSWERS_MAX) fail(`it sent ${INTERIM_ANSWERS_MAX} interim answers and no final one`);
    // Below a path they would be hints of the API's origin.
    else if (asked.prefix === "" && faultOfAnswer(rawHeaders) === null)
      raw.sendInterim(statusCode, answerHead(rawHeaders, "", {}));
  });
  // After the answer has begun, this changes nothing: the answer itself fails.
  request.on("error", (error: NodeJS.ErrnoException) => failClosed(reasonOf(error)));
  request.once("close", () => failClosed("it closed the connection"));
  const onFinish = (): void => {
    const timer = clock.timer(ANSWER_MS_MAX, () => fail(`none came in ${ANSWER_MS_MAX / 1000} s`));
    stopWaiting = () => timer.cancel();
  };
  let stopWaiting = (): void => void request.off("finish", onFinish);
  request.once("finish", onFinish);
  send(raw, request);
  try {
    return await promise;
  } finally {
    stopWaiting();
  }
}

/**
 * An answer without a length ends with its connection. Node's client takes every end for that one, also that
 * of a guest that has gone; a part must not look like the whole.
 */
function breakWith({ socket }: GuestConnection, message: IncomingMessage): void {
  const { "content-length": length, "transfer-encoding": encoding } = message.headers;
  if (length !== undefined || encoding !== undefined) return;
  const onError = (error: Error): void => void (socket.readableEnded || message.destroy(error));
  socket.once("error", onError);
  socket.once("free", () => socket.off("error", onError));
}

/** Does not throw: the request has passed a parser that is as strict as this client. */
function open({ socket, frame, isReused }: GuestConnection, { raw, path, prefix }: GuestRequest): ClientRequest {
  const { message, upgrade, isFromProxy } = raw;
  const { method = "GET", socket: caller } = message;
  const upgradeTo = upgrade === undefined ? null : (message.headers.upgrade ?? null);
  const isKept = mayReuse(raw);
  const remoteAddress = caller.remoteAddress ?? "";
  const facts = { prefix, remoteAddress, isFromProxy, isEncrypted: "encrypted" in caller, upgradeTo, isKept };
  const request = httpRequest({
    createConnection: () => socket,
    method,
    path,
    headers: requestHead(message.rawHeaders, method, facts),
    maxHeaderSize: HEAD_BYTES_MAX,
    // The answer is read leniently. Whether the connection carries another is decided by a stricter reader
    // (answer-frame.ts).
    insecureHTTPParser: true,
    setHost: false,
  });
  if (!isRepeatable(raw)) return request;
  // The client then emits `free` on the connection instead of closing it.
  request.shouldKeepAlive = isKept;
  frame.begin(method);
  // After the client has attached its listener: an earlier one would consume bytes that have arrived already.
  if (!isReused) request.once("socket", () => socket.on("data", (chunk: Buffer) => frame.take(chunk)));
  return request;
}

function send({ message, upgrade }: RawRequest, request: ClientRequest): void {
  if (upgrade !== undefined) return void request.end();
  if (!hasBody(message)) {
    message.resume();
    return void request.end();
  }
  // The guest may answer the head, before the body has begun.
  request.flushHeaders();
  const passing = passBody(message, request, (work) => work());
  // A guest that answers early reads no more; the rest is read and dropped, so that the caller reads the
  // answer.
  request.once("close", () => passing.stop());
  passing.all.then(
    () => {
      const trailers = trailersOf(message.rawTrailers);
      if (trailers.length > 0) request.addTrailers(trailers);
      request.end();
    },
    () => request.destroy(),
  );
}

function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  if (code === "HPE_HEADER_OVERFLOW") return `the head of its answer is larger than ${HEAD_BYTES_MAX} bytes`;
  if (code?.startsWith("HPE_")) return `what it sends is not HTTP (${code})`;
  return message;
}
