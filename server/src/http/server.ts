/**
 * The HTTP server: Fastify for sockets, routing and life cycle; everything else about a request is in handle.ts.
 *
 * Fastify's own parsing, validation and serialization are not used: each request is taken over in its first hook.
 *
 * Always: a path with a `%` that is no escape is taken literally instead of being refused by the router; closing stops
 * accepting, ends what streams without end, lets what else runs finish until a deadline, then aborts it.
 */
import { type IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { ListenAddress } from "@flotilla/contract/settings";
import { fastify, type FastifyInstance } from "fastify";
import type { Clock } from "../context.ts";
import { CallerPresence } from "./caller-presence.ts";
import { handle, type HandleParts } from "./handle.ts";
import type { Page } from "./page.ts";
import type { PathEntry } from "./route-table.ts";
import { isUpgrade, type Upgrade } from "./upgrade.ts";

export interface HttpServer {
  readonly address: ListenAddress;
  /** Resolves when every connection is closed: after `deadlineMs`, or once `hurry` is aborted, what runs is cut off. */
  close(options: { readonly deadlineMs: number; readonly hurry?: AbortSignal | undefined }): Promise<void>;
}

declare module "fastify" {
  interface FastifyContextConfig {
    entry?: PathEntry | Page;
  }
}

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/** A parameter may be the path of a file. */
const PARAMETER_CHARACTERS_MAX = 16_384;
/** Longer than the pools of common clients and proxies keep a connection, so that they close it, not we. */
const KEEP_ALIVE_MS = 75_000;
/** How often a server that closes looks for connections on which nothing is asked any more. */
const IDLE_LOOK_MS = 50;

export interface HttpOptions {
  readonly listen: ListenAddress;
  readonly entries: readonly (PathEntry | Page)[];
  /** How long a connection may wait for its next request, in place of KEEP_ALIVE_MS. For tests. */
  readonly keepAliveMs?: number | undefined;
}

export async function startHttp(
  { listen, entries, keepAliveMs = KEEP_ALIVE_MS }: HttpOptions,
  parts: HandleParts,
): Promise<HttpServer> {
  const waiting = new Set<CallerPresence>();
  const closing = new AbortController();
  const app = fastify({
    logger: false,
    exposeHeadRoutes: false,
    forceCloseConnections: "idle",
    return503OnClosing: false,
    keepAliveTimeout: keepAliveMs,
    http: {
      // A request without a body has nothing to read, and a stream that ends costs as much as routing it.
      optimizeEmptyRequests: true,
      shouldUpgradeCallback: (message) => isUpgrade(message, parts.ingress.owns(message)),
    },
    routerOptions: { maxParamLength: PARAMETER_CHARACTERS_MAX },
    rewriteUrl: (message) => literalPercent(message.url ?? "/"),
    clientErrorHandler(error, socket) {
      answerBrokenRequest(error as NodeJS.ErrnoException, socket, parts);
    },
  });
  const upgrades = takeUpgrades(app, closing.signal);
  // Without calling back: the framework has nothing more to do.
  app.addHook("onRequest", (request, reply, _next) => {
    reply.hijack();
    // A connection that is kept alive would hold a closing server open until the deadline.
    if (closing.signal.aborted) reply.raw.setHeader("connection", "close");
    const upgrade = upgrades.get(request.raw);
    const presence = new CallerPresence(reply.raw, { upgraded: upgrade?.socket, waiting, closing: closing.signal });
    const incoming = {
      message: request.raw,
      response: reply.raw,
      params: request.params as Record<string, string>,
      entry: request.routeOptions.config?.entry,
      url: request.originalUrl,
      upgrade,
    };
    // Only a fault in sending; without an end the caller would wait for ever.
    const fail = (error: unknown): void => {
      parts.context.log.error({ error }, "an answer could not be sent");
      reply.raw.destroy();
    };
    try {
      handle(parts, incoming, presence)?.catch(fail);
    } catch (error) {
      fail(error);
    }
  });
  app.setNotFoundHandler(() => undefined);
  for (const entry of entries) {
    app.route({ method: METHODS, url: entry.url, config: { entry }, handler: () => undefined });
  }
  try {
    await app.listen({ host: listen.host, port: listen.port });
  } catch (error) {
    throw cannotListen(listen, error as NodeJS.ErrnoException);
  }
  const { port } = app.server.address() as AddressInfo;
  return {
    address: { host: listen.host, port },
    close: ({ deadlineMs, hurry }) => {
      closing.abort();
      return close(app, waiting, parts, { deadlineMs, hurry });
    },
  };
}

function takeUpgrades(app: FastifyInstance, closing: AbortSignal): WeakMap<IncomingMessage, Upgrade> {
  const upgrades = new WeakMap<IncomingMessage, Upgrade>();
  app.server.on("upgrade", (message: IncomingMessage, socket: Duplex, head: Buffer) => {
    upgrades.set(message, { message, socket, head, closing });
    app.routing(message, responseOn(message, socket));
  });
  return upgrades;
}

/** Where a refused handshake is answered: nothing reads the connection any more, so it ends with the answer. */
function responseOn(message: IncomingMessage, socket: Duplex): ServerResponse {
  const response = new ServerResponse(message);
  // A connection of this server's: Node calls it a Duplex because others can be handed in.
  response.assignSocket(socket as Socket);
  response.shouldKeepAlive = false;
  response.once("finish", () => socket.end());
  socket.on("error", () => socket.destroy());
  return response;
}

/** Makes every `%` of the path that does not start a valid escape an escaped percent sign. Pure. */
function literalPercent(url: string): string {
  const at = url.indexOf("?");
  const path = at < 0 ? url : url.slice(0, at);
  if (!path.includes("%")) return url;
  const fixed = path.replace(/%(?![0-9A-Fa-f]{2})/g, "%25");
  const search = at < 0 ? "" : url.slice(at);
  try {
    decodeURIComponent(fixed);
    return fixed + search;
  } catch {
    return path.replaceAll("%", "%25") + search;
  }
}

function cannotListen({ host, port }: ListenAddress, error: NodeJS.ErrnoException): Error {
  const reason =
    error.code === "EADDRINUSE" ? "another program listens there; choose another with --listen" : error.message;
  return new Error(`cannot listen on ${host}:${port}: ${reason}`, { cause: error });
}

async function close(
  app: FastifyInstance,
  waiting: ReadonlySet<CallerPresence>,
  { context }: HandleParts,
  { deadlineMs, hurry }: Parameters<HttpServer["close"]>[0],
): Promise<void> {
  const closed = new AbortController();
  const idling = closeIdle(app, context.clock, closed.signal);
  const wakes = hurry === undefined ? closed.signal : AbortSignal.any([closed.signal, hurry]);
  const late = context.clock.sleep(deadlineMs, wakes).then(() => {
    if (closed.signal.aborted) return;
    context.log.warn({ waiting: waiting.size }, "requests did not finish in time and are ended");
    for (const presence of waiting) presence.end();
    app.server.closeAllConnections();
  });
  await app.close();
  closed.abort();
  await Promise.all([late, idling]);
}

/** A connection that is kept alive after its last answer would hold a closing server open until the deadline. */
async function closeIdle({ server }: FastifyInstance, clock: Clock, closed: AbortSignal): Promise<void> {
  while (!closed.aborted) {
    server.closeIdleConnections();
    await clock.sleep(IDLE_LOOK_MS, closed);
  }
}

/** What is not HTTP, or has too large a head, never becomes a request; it still gets an answer with an id. */
function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Socket, { requestIds }: HandleParts): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const requestId = requestIds(undefined);
  const status = error.code === "HPE_HEADER_OVERFLOW" ? "431 Request Header Fields Too Large" : "400 Bad Request";
  const text = `the request is not understood: ${status.slice(4).toLowerCase()}`;
  socket.end(
    `HTTP/1.1 ${status}\r\nx-request-id: ${requestId}\r\nx-error-code: invalid_request\r\n` +
      `content-type: text/plain; charset=utf-8\r\ncontent-length: ${text.length}\r\nconnection: close\r\n\r\n${text}`,
  );
}
