/**
 * Sessions of the older era of the protocol over HTTP, in which a server may ask its client.
 *
 * Always:
 * - A session belongs to the key that began it; with another key it is not found.
 * - At most SESSIONS_MAX are open, and SESSIONS_PER_KEY_MAX of a key, whose least recently used one ends for
 *   a new one if nothing runs in it. Each ends IDLE_MS after the last request that it answered, or whose
 *   caller disconnected. What runs in one that ends is cancelled.
 * - At most CALLS_MAX requests of a session are without an answer, also of callers that have disconnected.
 *
 * They are in memory: after a restart a client gets 404 and begins another, as the protocol says.
 */
import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "@flotilla/base/clock";
import {
  isInitializeRequest,
  isJSONRPCNotification,
  isJSONRPCRequest,
  type JSONRPCMessage,
  type McpServer,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { Access } from "./access.ts";

const SESSIONS_MAX = 512;
const SESSIONS_PER_KEY_MAX = 16;
const CALLS_MAX = 32;
const IDLE_MS = 30 * 60_000;

type RequestId = string | number;

interface Open {
  readonly id: string;
  readonly subject: string;
  readonly server: McpServer;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  /** Requests without an answer, each with what gives back its hold of its body's memory. */
  readonly calls: Map<RequestId, () => void>;
  /** Answers that are being sent. */
  answering: number;
  /** null: an answer is being sent. */
  idle: Timer | null;
}

/** A request of a caller, and its end. */
export interface Arrived {
  readonly request: Request;
  readonly access: Access;
  readonly parsedBody: unknown;
  /** Resolves when it is answered or its caller has disconnected. */
  readonly ended: Promise<unknown>;
  /** Holds the memory of its body until the returned function is called. */
  readonly holdBody: () => () => void;
}

export class Sessions {
  readonly #clock: Clock;
  readonly #factory: (access: Access) => McpServer;
  readonly #maxRequestBodySize: number;
  /** The least recently used first. */
  readonly #open = new Map<string, Open>();

  constructor(clock: Clock, factory: (access: Access) => McpServer, maxRequestBodySize: number) {
    this.#clock = clock;
    this.#factory = factory;
    this.#maxRequestBodySize = maxRequestBodySize;
  }

  async close(): Promise<void> {
    for (const session of this.#open.values()) await this.#end(session);
  }

  /** Ends all sessions of a key. */
  async endOf(subject: string): Promise<void> {
    for (const session of this.#of(subject)) await this.#end(session);
  }

  async answer(arrived: Arrived): Promise<Response> {
    const { request, access, parsedBody } = arrived;
    const id = request.headers.get("mcp-session-id");
    const known = id === null ? undefined : this.#open.get(id);
    if (id !== null && known?.subject !== access.caller.subject)
      return refusal(404, "the session is not known; begin another");
    if (known === undefined && !isInitializeRequest(parsedBody))
      return refusal(400, "a request of this era needs a session: initialize one");
    const session = known ?? (await this.#begin(access));
    if (session === null) return refusal(503, "too many sessions are open");
    this.#use(session, arrived.ended);
    const refused = hold(session, arrived);
    if (refused !== null) return refused;
    const authInfo = { token: "", clientId: access.caller.subject, scopes: [...access.caller.scopes] };
    return session.transport.handleRequest(request, { authInfo, parsedBody });
  }

  /** null: too many are open. */
  async #begin(access: Access): Promise<Open | null> {
    const { subject } = access.caller;
    const own = this.#of(subject);
    if (own.length >= SESSIONS_PER_KEY_MAX) {
      const unused = own.find(({ answering, calls }) => answering === 0 && calls.size === 0);
      if (unused === undefined) return null;
      await this.#end(unused);
    }
    if (this.#open.size >= SESSIONS_MAX) return null;
    const id = randomUUID();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      onsessionclosed: () => this.#end(session),
      maxRequestBodySize: this.#maxRequestBodySize,
    });
    const server = this.#factory(access);
    const calls: Open["calls"] = new Map();
    const session: Open = { id, subject, server, transport, calls, answering: 0, idle: null };
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      if (isAnswer(message)) forget(session, message.id);
      return send(message, options);
    };
    this.#open.set(id, session);
    await server.connect(transport);
    return session;
  }

  #use(session: Open, ended: Promise<unknown>): void {
    session.idle?.cancel();
    session.idle = null;
    session.answering += 1;
    // Again, at the end of their order.
    if (this.#open.delete(session.id)) this.#open.set(session.id, session);
    void ended.then(() => {
      session.answering -= 1;
      if (session.answering > 0 || !this.#open.has(session.id)) return;
      session.idle = this.#clock.timer(IDLE_MS, () => void this.#end(session));
    });
  }

  async #end(session: Open): Promise<void> {
    if (!this.#open.delete(session.id)) return;
    session.idle?.cancel();
    await session.server.close();
    for (const id of session.calls.keys()) forget(session, id);
  }

  #of(subject: string): readonly Open[] {
    return [...this.#open.values()].filter((session) => session.subject === subject);
  }
}

/** Keeps its requests until they are answered or cancelled. Returns why not. */
function hold(session: Open, { parsedBody, holdBody }: Arrived): Response | null {
  const { calls } = session;
  const messages: readonly unknown[] = Array.isArray(parsedBody) ? parsedBody : [parsedBody];
  const requests = messages.filter((message) => isJSONRPCRequest(message));
  if (calls.size + requests.length > CALLS_MAX)
    return refusal(503, "too many requests of the session have no answer yet");
  for (const message of messages.filter((each) => isJSONRPCNotification(each))) {
    const cancelled = message.method === "notifications/cancelled" ? message.params?.["requestId"] : undefined;
    if (typeof cancelled === "string" || typeof cancelled === "number") forget(session, cancelled);
  }
  for (const { id } of requests) {
    if (calls.has(id)) return refusal(400, `the request ${JSON.stringify(id)} has no answer yet`);
    calls.set(id, holdBody());
  }
  return null;
}

function forget({ calls }: Open, id: RequestId): void {
  calls.get(id)?.();
  calls.delete(id);
}

const isAnswer = (message: JSONRPCMessage): message is JSONRPCMessage & { readonly id: RequestId } =>
  "id" in message && message.id !== undefined && !("method" in message);

const refusal = (status: number, message: string): Response =>
  Response.json({ jsonrpc: "2.0", id: null, error: { code: -32_000, message } }, { status });
