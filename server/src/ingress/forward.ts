/**
 * Forwards one request to a port of a machine and returns the guest's answer: the core of the connect bridge
 * and of the ingress. Requests for apps are forwarded by apps/forward.ts, which tries several instances.
 *
 * Always:
 * - bodies are streamed, and neither side is read faster than the other reads;
 * - when the caller disconnects, the guest's connection is closed; when a guest disconnects within an answer,
 *   the caller's connection is broken, so that no partial answer looks complete;
 * - a request is sent to the guest once. Only a repeatable one (guest-request.ts) uses a connection that
 *   waited, and only if the guest closed that without a byte of an answer is it sent again, once, on a new
 *   connection; and one whose connection broke like that because the machine moved is sent again where it is;
 * - the machine counts as used while a request is under way or an upgraded connection is open;
 * - a machine that does not run is not started: 503. One that is starting is waited for.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Context } from "../context.ts";
import type { PassedReply, RawRequest } from "../http/answer.ts";
import { sendBody } from "../http/send-body.ts";
import { endWhenStalled } from "../http/stalled.ts";
import type { NodeLink } from "../link/node-link.ts";
import { NotRunning } from "../link/refusals.ts";
import type { Activity } from "../machines/activity.ts";
import type { MachineCache } from "../machines/machine-cache.ts";
import { nodeOf } from "../machines/record.ts";
import { connectToGuest, type GuestConnection } from "./guest-connection.ts";
import { type GuestPort, withGuestPort } from "./guest-port.ts";
import { ask, mayReuse, Unanswered } from "./guest-request.ts";
import { answerHead, trailersOf } from "./head.ts";
import type { IdleConnections } from "./idle-connections.ts";
import { splice } from "./splice.ts";
import type { TargetPort } from "./target.ts";

/** What forwarding works with. */
export interface ForwardServices {
  readonly context: Context;
  readonly link: NodeLink;
  readonly cache: MachineCache;
  readonly activity: Activity;
  readonly idle: IdleConnections;
}

export interface ForwardOptions {
  readonly target: TargetPort;
  readonly raw: RawRequest;
  /** Path and query for the guest. */
  readonly path: string;
  readonly prefix: string;
  /** Cancels it: the caller has disconnected, or its right has ended. */
  readonly signal: AbortSignal;
  /** Ends streams of events: the process stops, and their readers are to go elsewhere. */
  readonly closing: AbortSignal;
}

/** One of several attempts to forward a request. */
export interface Attempt {
  /** Cancels connecting. */
  readonly connecting: AbortSignal;
  /** Holds the request open until the function that is returned is called: for its connection. */
  readonly hold: () => () => void;
  /** Whether a guest may have acted upon the request; set by the attempt. */
  isSent: boolean;
}

/** Resolves when the head of the guest's answer has arrived. Throws a Refusal when none does. */
export async function forward(services: ForwardServices, options: ForwardOptions): Promise<PassedReply> {
  const only = { connecting: options.signal, hold: () => () => undefined, isSent: false };
  try {
    return await forwardOnce(services, options, only);
  } catch (error) {
    options.raw.message.resume();
    throw error;
  }
}

/** As `forward`, but leaves the body of a request unread while nothing was sent, for another attempt. */
export function forwardOnce(
  services: ForwardServices,
  options: ForwardOptions,
  attempt: Attempt,
): Promise<PassedReply> {
  const { cache, context } = services;
  const request = { ...options.target, signal: attempt.connecting };
  return withGuestPort({ cache, clock: context.clock }, request, (port) =>
    throughPort(services, options, { port, attempt }),
  );
}

interface Reached {
  readonly port: GuestPort;
  readonly attempt: Attempt;
}

async function throughPort(
  services: ForwardServices,
  options: ForwardOptions,
  { port, attempt }: Reached,
): Promise<PassedReply> {
  const waiting = mayReuse(options.raw) ? services.idle.take(port) : undefined;
  if (waiting !== undefined) {
    try {
      return await exchange(services, options, { port, attempt, connection: waiting });
    } catch (error) {
      if (!(error instanceof Unanswered) || options.signal.aborted) throw error;
      attempt.isSent = false;
    }
  }
  const { randomBytes } = services.context;
  const lasting = lasts(options.raw) ? { locate: port.locate, randomBytes } : null;
  const connection = await connectToGuest(services.link, port, { signal: attempt.connecting, lasting });
  const answered = services.idle.waits(port);
  try {
    return await exchange(services, options, { port, attempt, connection });
  } catch (error) {
    // A repeatable request, of whose answer nothing has come.
    if (error instanceof Unanswered && !options.signal.aborted && (await hasLeft(services, port))) {
      attempt.isSent = false;
      throw new NotRunning("the machine left its node while it was asked");
    }
    throw error;
  } finally {
    answered();
  }
}

/** Whether the machine moves, or has moved, so that its connections to that node broke. */
async function hasLeft({ cache }: ForwardServices, { tenantId, machineId, node }: GuestPort): Promise<boolean> {
  const now = await cache.read({ tenantId, id: machineId });
  return now !== undefined && (now.moveId !== null || nodeOf(now).address !== node.address);
}

/**
 * Whether the answer lasts as long as its caller wants, so that it meets a move or a restart of the node's
 * agent.
 */
const lasts = ({ upgrade, message }: RawRequest): boolean =>
  upgrade !== undefined || (message.headers.accept ?? "").includes("text/event-stream");

interface Dialed extends Reached {
  readonly connection: GuestConnection;
}

async function exchange(
  services: ForwardServices,
  { raw, path, prefix, signal, closing }: ForwardOptions,
  { port, attempt, connection }: Dialed,
): Promise<PassedReply> {
  const { socket } = connection;
  const end = (): void => void socket.destroy();
  const release = attempt.hold();
  const isInUse = useOf(services, { port, connection }, () => {
    signal.removeEventListener("abort", end);
    release();
  });
  attempt.isSent = true;
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();
  try {
    const request = { raw, machineId: port.machineId, path, prefix };
    const { message, upgraded } = await ask(connection, request, services.context.clock);
    if (upgraded !== null) return passedUpgrade(services, message, { guest: upgraded, prefix });
    // Once the connection is free it may belong to another request.
    const close = (): void => void (isInUse() && socket.destroy());
    return passedAnswer(message, { raw, prefix, close, closing });
  } catch (error) {
    if (isInUse()) socket.destroy();
    throw error;
  }
}

/**
 * Counts the machine as used until the connection is closed or free for another request. The result says
 * whether it is in use.
 */
function useOf(
  { activity, idle }: ForwardServices,
  { port, connection }: Omit<Dialed, "attempt">,
  onOver: () => void,
): () => boolean {
  const { socket } = connection;
  const closed = activity.opened(port.machineId);
  let isInUse = true;
  const over = (): void => {
    isInUse = false;
    socket.off("close", over);
    socket.off("free", free);
    closed();
    onOver();
  };
  const free = (): void => {
    over();
    idle.keep(port, connection);
  };
  socket.once("free", free);
  socket.once("close", over);
  if (socket.closed) over();
  return () => isInUse;
}

interface Passing {
  readonly raw: RawRequest;
  readonly prefix: string;
  /** Breaks the connection to the guest, if it is still this request's. */
  readonly close: () => void;
  readonly closing: AbortSignal;
}

function passedAnswer(answer: IncomingMessage, { raw, prefix, close, closing }: Passing): PassedReply {
  const status = answer.statusCode ?? 502;
  const isOfEvents = (answer.headers["content-type"] ?? "").startsWith("text/event-stream");
  const sendAnswer = async (response: ServerResponse, own: Readonly<Record<string, string>>): Promise<boolean> => {
    try {
      if (response.destroyed) return false;
      endWhenStalled(response);
      response.writeHead(status, answerHead(answer.rawHeaders, prefix, own, status));
      // The first event may come late, and its reader waits for the head.
      response.flushHeaders();
      const early = isOfEvents ? closing : undefined;
      return await sendBody(answer, response, { trailersOf: () => trailersOf(answer.rawTrailers), early });
    } catch {
      response.destroy();
      return false;
    } finally {
      close();
      raw.message.resume();
    }
  };
  return { status, sendAnswer };
}

function passedUpgrade(
  { context }: Pick<ForwardServices, "context">,
  answer: IncomingMessage,
  { guest, prefix }: { readonly guest: Duplex; readonly prefix: string },
): PassedReply {
  return {
    status: 101,
    upgrade({ socket, head, closing }, own) {
      const lines = ["HTTP/1.1 101 Switching Protocols"];
      const headers = answerHead(answer.rawHeaders, prefix, own);
      headers.push("connection", "Upgrade", "upgrade", answer.headers.upgrade ?? "");
      for (let at = 0; at + 1 < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
      socket.write(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
      if (head.byteLength > 0) socket.unshift(head);
      splice(socket, guest, { clock: context.clock, closing });
    },
  };
}
