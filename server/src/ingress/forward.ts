/**
 * Hands one request on to a port of a machine and brings back what the guest answers: the core of the connect bridge and
 * of the ingress. One connection to the guest for each request.
 *
 * Always:
 * - bodies are streamed, and neither side is read faster than the other takes it;
 * - a caller who goes away ends the guest's connection, and a guest that goes away in the middle of an answer breaks the
 *   caller's, so that no part is taken for the whole;
 * - the guest is hostile: what is not HTTP, a head larger than HEAD_BYTES_MAX, and no answer within ANSWER_MS_MAX of the
 *   request's end are refusals with 502; further answers before the final one (1xx) are dropped;
 * - the machine counts as used as long as the connection is open;
 * - nothing starts a machine: one that does not run is 503.
 *
 * Node's own HTTP client speaks to the guest over the dialed connection: it streams both bodies, frames them anew and takes
 * upgrades. It reads heads as browsers and curl do, lines that end without a carriage return among them; what could mean
 * one thing here and another to the caller is refused all the same (head.ts).
 */
import { type ClientRequest, type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { PassedReply, RawRequest } from "../http/handler.ts";
import { endWhenStalled } from "../http/stalled.ts";
import { dialOnNode } from "../link/dial.ts";
import type { NodeLink } from "../link/node-link.ts";
import type { Activity } from "../machines/activity.ts";
import type { MachineCache } from "../machines/machine-cache.ts";
import { type PortRequest, withGuestPort } from "./guest-port.ts";
import { answerHead, faultOfAnswer, requestHead } from "./head.ts";
import { splice } from "./splice.ts";

const HEAD_BYTES_MAX = 64 * 1024;
/** Long enough for a long poll. */
const ANSWER_MS_MAX = 5 * 60_000;

export interface ForwardOptions extends PortRequest {
  readonly raw: RawRequest;
  /** Path and query for the guest. */
  readonly path: string;
  readonly prefix: string;
  /** Ends it: the caller has gone, or its right has ended. */
  readonly signal: AbortSignal;
}

/** Resolves when the head of the guest's answer is there. Throws a Refusal when there is none. */
export async function forward(services: ForwardServices, options: ForwardOptions): Promise<PassedReply> {
  const { raw, machine, signal } = options;
  const connection = await withGuestPort(services.cache, options, ({ node, ...guestPort }) =>
    dialOnNode(services.link, node, { ...guestPort, signal }),
  );
  whenClosed(connection, services.activity.opened(machine.id));
  const end = (): void => void connection.destroy();
  // Once the answer is sent the caller's end means nothing, and by then the connection is closed.
  signal.addEventListener("abort", end, { once: true });
  whenClosed(connection, () => signal.removeEventListener("abort", end));
  if (signal.aborted) end();
  try {
    const answered = await ask(services, connection, options);
    return answered.upgraded === null
      ? passedAnswer(connection, answered.message, options)
      : passedUpgrade(services, answered.message, { ...options, guest: answered.upgraded });
  } catch (error) {
    connection.destroy();
    raw.message.resume();
    throw error;
  }
}

function whenClosed(connection: Duplex, call: () => void): void {
  if (connection.closed) call();
  else connection.once("close", call);
}

/** What forwarding works with. */
export interface ForwardServices {
  readonly context: Context;
  readonly link: NodeLink;
  readonly cache: MachineCache;
  readonly activity: Activity;
}

interface Answered {
  readonly message: IncomingMessage;
  /** The connection, when it has become something else. */
  readonly upgraded: Duplex | null;
}

async function ask(services: ForwardServices, connection: Duplex, options: ForwardOptions): Promise<Answered> {
  const { raw, machine } = options;
  const request = open(connection, options);
  const { promise, resolve, reject } = Promise.withResolvers<Answered>();
  const fail = (why: string): void =>
    reject(new Refusal("guest_unreachable", `what listens in machine ${machine.id} gave no answer: ${why}`));
  request.once("response", (message) => {
    // Three digits are all that the parser asks of a status.
    const fault = faultOfAnswer(message.rawHeaders);
    if ((message.statusCode ?? 0) < 200) fail(`it answers with status ${message.statusCode}`);
    else if (fault !== null) fail(fault);
    else resolve({ message, upgraded: null });
  });
  if (raw.upgrade !== undefined)
    request.once("upgrade", (message, socket, head) => {
      const fault = faultOfAnswer(message.rawHeaders);
      if (fault !== null) return fail(fault);
      if (head.byteLength > 0) socket.unshift(head);
      resolve({ message, upgraded: socket });
    });
  // Also after the answer has begun: then its own end tells.
  request.on("error", (error: NodeJS.ErrnoException) => fail(reasonOf(error)));
  request.once("close", () => fail("it closed the connection"));
  const answered = new AbortController();
  const { clock } = services.context;
  request.once("finish", () => {
    void clock.sleep(ANSWER_MS_MAX, answered.signal).then(() => fail(`none came in ${ANSWER_MS_MAX / 1000} s`));
  });
  send(raw, request);
  try {
    return await promise;
  } finally {
    answered.abort();
  }
}

/** Does not throw: what stands in the request has passed a parser that is as strict as this client. */
function open(connection: Duplex, { raw, path, prefix }: ForwardOptions): ClientRequest {
  const { message, upgrade } = raw;
  const { method = "GET", socket } = message;
  const upgradeTo = upgrade === undefined ? null : (message.headers.upgrade ?? null);
  const remoteAddress = socket.remoteAddress ?? "";
  const facts = { prefix, remoteAddress, isEncrypted: "encrypted" in socket, upgradeTo };
  return httpRequest({
    createConnection: () => connection,
    method,
    path,
    headers: requestHead(message.rawHeaders, method, facts),
    maxHeaderSize: HEAD_BYTES_MAX,
    // For the answer. The connection carries no other, so what follows it is nobody's.
    insecureHTTPParser: true,
    setHost: false,
  });
}

function send({ message, upgrade }: RawRequest, request: ClientRequest): void {
  if (upgrade !== undefined) return void request.end();
  // A guest that ends early takes no more; the rest is read and dropped, so that the caller gets to the answer.
  request.once("close", () => {
    message.unpipe(request);
    message.resume();
  });
  message.on("error", () => request.destroy());
  message.pipe(request);
}

function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  if (code === "HPE_HEADER_OVERFLOW") return `the head of its answer is larger than ${HEAD_BYTES_MAX} bytes`;
  if (code?.startsWith("HPE_")) return `what it sends is not HTTP (${code})`;
  return message;
}

function passedAnswer(connection: Duplex, answer: IncomingMessage, { prefix, raw }: ForwardOptions): PassedReply {
  const status = answer.statusCode ?? 502;
  const sendAnswer = async (response: ServerResponse, own: Readonly<Record<string, string>>): Promise<boolean> => {
    try {
      if (response.destroyed) return false;
      endWhenStalled(response);
      response.writeHead(status, answerHead(answer.rawHeaders, prefix, own, status));
      // Events may come late, and who waits for them waits for the head.
      response.flushHeaders();
      await pipeline(answer, response);
      return true;
    } catch {
      response.destroy();
      return false;
    } finally {
      connection.destroy();
      raw.message.resume();
    }
  };
  return { status, sendAnswer };
}

function passedUpgrade(
  { context }: Pick<ForwardServices, "context">,
  answer: IncomingMessage,
  { guest, prefix }: ForwardOptions & { readonly guest: Duplex },
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
      // Whoever is gone without a word is found out by the system.
      if (socket instanceof Socket) socket.setKeepAlive(true, 60_000);
      splice(socket, guest, { clock: context.clock, closing });
    },
  };
}
