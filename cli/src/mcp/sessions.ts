/**
 * Sessions of the older era of the protocol over HTTP, in which a server may ask its client.
 *
 * Always:
 * - A session belongs to the key that began it; with another key it is not found.
 * - At most SESSIONS_MAX are open, and each ends IDLE_MS after its last request. What runs in one that ends
 *   is cancelled.
 *
 * They are in memory: after a restart a client gets 404 and begins another, as the protocol says.
 */
import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "@flotilla/base/clock";
import {
  isInitializeRequest,
  type McpServer,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { Access } from "./access.ts";

const SESSIONS_MAX = 512;
const IDLE_MS = 30 * 60_000;

interface Open {
  readonly subject: string;
  readonly server: McpServer;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  idle: Timer;
}

export class Sessions {
  readonly #clock: Clock;
  readonly #factory: (access: Access) => McpServer;
  readonly #maxRequestBodySize: number;
  readonly #open = new Map<string, Open>();

  constructor(clock: Clock, factory: (access: Access) => McpServer, maxRequestBodySize: number) {
    this.#clock = clock;
    this.#factory = factory;
    this.#maxRequestBodySize = maxRequestBodySize;
  }

  async close(): Promise<void> {
    for (const id of this.#open.keys()) await this.#end(id);
  }

  async answer(request: Request, access: Access, parsedBody: unknown): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    const session = id === null ? undefined : this.#open.get(id);
    const authInfo = { token: "", clientId: access.caller.subject, scopes: [...access.caller.scopes] };
    if (id !== null && session?.subject === access.caller.subject) {
      session.idle.cancel();
      session.idle = this.#idleTimer(id);
      return session.transport.handleRequest(request, { authInfo, parsedBody });
    }
    if (id !== null) return refusal(404, "the session is not known; begin another");
    if (!isInitializeRequest(parsedBody)) return refusal(400, "a request of this era needs a session: initialize one");
    if (this.#open.size >= SESSIONS_MAX) return refusal(503, "too many sessions are open");
    const transport = await this.#begin(access);
    return transport.handleRequest(request, { authInfo, parsedBody });
  }

  async #begin(access: Access): Promise<WebStandardStreamableHTTPServerTransport> {
    const id = randomUUID();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      onsessionclosed: () => this.#end(id),
      maxRequestBodySize: this.#maxRequestBodySize,
    });
    const server = this.#factory(access);
    await server.connect(transport);
    this.#open.set(id, { subject: access.caller.subject, server, transport, idle: this.#idleTimer(id) });
    return transport;
  }

  #idleTimer(id: string): Timer {
    return this.#clock.timer(IDLE_MS, () => void this.#end(id));
  }

  async #end(id: string): Promise<void> {
    const session = this.#open.get(id);
    if (session === undefined) return;
    this.#open.delete(id);
    session.idle.cancel();
    await session.server.close();
  }
}

const refusal = (status: number, message: string): Response =>
  Response.json({ jsonrpc: "2.0", id: null, error: { code: -32_000, message } }, { status });
