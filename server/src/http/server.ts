/**
 * The HTTP server: node:http for connections and parsing. A service answers the requests (api/handle.ts,
 * ingress/serve.ts).
 *
 * Always:
 * - connections.ts decides which connections of the public listener are held; those of nodes are separate and
 *   not counted.
 * - An upgrade that is asked for before the answers to earlier requests of its connection is ignored, as HTTP
 *   allows.
 * - Closing stops accepting, ends streams without end, lets other requests finish until a deadline, then
 *   aborts them.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { probeWhenSilent } from "@flotilla/base/probes";
import { LinkedList } from "@flotilla/base/linked-list";
import type { NodeCertificate } from "../auth/caller.ts";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import type { Context } from "../context.ts";
import type { Admission } from "../fairness/admission.ts";
import { LAST_ANSWER_MS, HEAD_MS_MAX } from "../fairness/bounds.ts";
import { answerBrokenRequest, answerOf, handleExpectations } from "./broken.ts";
import { hasBody } from "./body.ts";
import { CallerPresence } from "./caller-presence.ts";
import { Connections } from "./connections.ts";
import { continueWhenRead } from "./continue.ts";
import { type NodeListen, type NodeListener, startNodeListener } from "./node-listener.ts";
import type { RequestIds } from "./request-id.ts";
import { isUpgrade, type Upgrade } from "./upgrade.ts";

export interface HttpServer {
  readonly address: ListenAddress;
  /** Serves a connection of a node on another host. `certificate`: what the node has shown; null: none. */
  readonly serveNode: (socket: Socket, certificate: NodeCertificate | null) => void;
  /** Where nodes reach it apart from everybody else: urls and `unix:/path`. */
  readonly nodeAddresses: readonly string[];
  /**
   * Serves as before until the time is over or `hurry` is aborted, but keeps no connection alive after its
   * next answer. So clients and load balancers move to another server, and no request is on its way on a
   * connection that `close` ends.
   */
  delayStop(options: { readonly ms: number; readonly hurry?: AbortSignal | undefined }): Promise<void>;
  /**
   * Resolves when every connection is closed: after `deadlineMs`, or once `hurry` is aborted, what runs is
   * cut off.
   */
  close(options: { readonly deadlineMs: number; readonly hurry?: AbortSignal | undefined }): Promise<void>;
}

/** How often connections are looked at whose head does not come. */
const HEAD_LOOK_MS = 5_000;
/** Longer than the pools of common clients and proxies keep a connection, so that they close it, not we. */
const KEEP_ALIVE_MS = 75_000;
const CONNECTIONS = {
  // A request without a body has nothing to read, and a stream that ends costs as much as routing it.
  optimizeEmptyRequests: true,
  // It is asked for by the service, where the refusal gets a request id.
  requireHostHeader: false,
  // Bodies have their own deadlines (fairness/body-watch.ts).
  requestTimeout: 0,
};
/** How often a server that closes looks for connections on which nothing is asked any more. */
const IDLE_LOOK_MS = 50;

export interface HttpOptions {
  readonly listen: ListenAddress;
  /** How long a connection may wait for its next request, in place of KEEP_ALIVE_MS. For tests. */
  readonly keepAliveMs?: number | undefined;
  /** How long the head of a request may take, in place of HEAD_MS_MAX. For tests. */
  readonly headMs?: number | undefined;
  readonly connections: { readonly max: number; readonly perAddress: number };
  /** Where nodes reach this server apart from everybody else. */
  readonly nodeListens: readonly NodeListen[];
}

/** A request as it came over a connection. */
export interface Incoming {
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  readonly url: string;
  /** Only of a request that may become something else, mostly a WebSocket. */
  readonly upgrade: Upgrade | undefined;
  readonly presence: CallerPresence;
  /** It came over a listener that serves nodes only. */
  readonly isFromNodes: boolean;
  /** What a node on another host has shown in its handshake; null: none. */
  readonly certificate: NodeCertificate | null;
}

/** What answers requests. */
export interface HttpService {
  /**
   * A promise only if the request has to wait for something. Throws or rejects only for a fault in sending.
   */
  serve(incoming: Incoming): Promise<void> | void;
  /** Whether the request may ask for any other protocol, not only for a WebSocket. */
  passesUpgrade(message: IncomingMessage): boolean;
}

export interface HttpParts {
  readonly context: Pick<Context, "clock" | "log">;
  readonly requestIds: RequestIds;
  readonly admission: Admission;
  readonly service: HttpService;
}

export async function startHttp(options: HttpOptions, parts: HttpParts): Promise<HttpServer> {
  const { listen } = options;
  const { context, requestIds } = parts;
  const waiting = new LinkedList<CallerPresence>();
  const closing = new AbortController();
  let isStopping = false;
  const nodes: NodeListener[] = [];
  const remoteNodes = new Map<Socket, NodeCertificate | null>();
  const connections = new Connections({
    ...options.connections,
    proxies: parts.admission.proxies,
    clock: context.clock,
    requestId: () => requestIds(undefined),
  });
  const server = makeServer(options, connections, parts);
  const take = admitConnections(server, connections);
  handleExpectations(server, requestIds);
  const onRequest = (message: IncomingMessage, response: ServerResponse, upgrade?: Upgrade): void => {
    // A connection that is kept alive would hold a closing server open until the deadline.
    // So would one of a stranger a place among those of nodes.
    if (isStopping || remoteNodes.get(message.socket) === null) response.setHeader("connection", "close");
    if (!connections.began(message.socket, response)) return;
    const presence = new CallerPresence(response, { upgraded: upgrade?.socket, waiting, closing: closing.signal });
    const { url = "/" } = message;
    const isFromNodes = remoteNodes.has(message.socket) || nodes.some((listener) => listener.has(message.socket));
    const certificate = remoteNodes.get(message.socket) ?? null;
    serveSafely(parts, { message, response, url, upgrade, presence, isFromNodes, certificate });
  };
  server.on("request", onRequest);
  server.on("checkContinue", (message: IncomingMessage, response: ServerResponse) => {
    if (hasBody(message)) continueWhenRead(message, response);
    onRequest(message, response);
  });
  server.on("upgrade", (message: IncomingMessage, socket: Duplex, head: Buffer) =>
    onRequest(message, responseOn(message, socket, context.clock), { message, socket, head, closing: closing.signal }),
  );
  await startListening(server, listen);
  for (const nodeListen of options.nodeListens) nodes.push(await startNodeListener(nodeListen, take));
  const { port } = server.address() as AddressInfo;
  return {
    address: { host: listen.host, port },
    serveNode: (socket, certificate) => {
      remoteNodes.set(socket, certificate);
      socket.once("close", () => remoteNodes.delete(socket));
      take(socket);
    },
    nodeAddresses: nodes.map((listener) => listener.address),
    delayStop: async ({ ms, hurry }) => {
      if (ms === 0) return;
      isStopping = true;
      await context.clock.sleep(ms, hurry);
    },
    close: async (stopping) => {
      isStopping = true;
      closing.abort();
      parts.admission.close();
      const closings = nodes.map((listener) => listener.close());
      await Promise.all([close(server, { waiting, connections }, parts, stopping), ...closings]);
    },
  };
}

function makeServer(
  { keepAliveMs = KEEP_ALIVE_MS, headMs = HEAD_MS_MAX }: HttpOptions,
  connections: Connections,
  { service, requestIds }: HttpParts,
): Server {
  const server = createServer({
    ...CONNECTIONS,
    keepAliveTimeout: keepAliveMs,
    headersTimeout: headMs,
    connectionsCheckingInterval: Math.min(headMs, HEAD_LOOK_MS),
    // An answer to an earlier request needs the connection.
    shouldUpgradeCallback: (message) =>
      answerOf(message.socket) === null && isUpgrade(message, service.passesUpgrade(message)),
  });
  server.on("clientError", (error, socket) =>
    // A connection of this server's: Node calls it a Duplex because others can be handed in.
    answerBrokenRequest(error, socket as Socket, { connections, requestIds }),
  );
  return server;
}

async function startListening(server: Server, listen: ListenAddress): Promise<void> {
  server.listen(listen);
  try {
    await once(server, "listening");
  } catch (error) {
    throw cannotListen(listen, error as NodeJS.ErrnoException);
  }
}

function serveSafely({ context, service }: HttpParts, incoming: Incoming): void {
  // Only a fault in sending; without an end the caller would wait forever.
  const fail = (error: unknown): void => {
    context.log.error({ error }, "an answer could not be sent");
    incoming.response.destroy();
  };
  try {
    const serving = service.serve(incoming);
    if (serving instanceof Promise) serving.catch(fail);
  } catch (error) {
    fail(error);
  }
}

/**
 * Decides about each new connection before Node does anything with it. Returns Node's part, for connections
 * of nodes.
 */
function admitConnections(server: Server, connections: Connections): (socket: Socket) => void {
  const listeners = server.listeners("connection");
  const take = (socket: Socket): void => {
    for (const listener of listeners) listener.call(server, socket);
  };
  server.removeAllListeners("connection");
  server.on("connection", (socket) => {
    if (!connections.admit(socket)) return;
    // An answer may take minutes.
    probeWhenSilent(socket);
    take(socket);
  });
  return take;
}

/**
 * Where a refused handshake is answered: nothing reads the connection any more, so it ends with the answer.
 * It ends with its caller too.
 */
function responseOn(message: IncomingMessage, socket: Duplex, clock: Clock): ServerResponse {
  const response = new ServerResponse(message);
  // A connection of this server's: Node calls it a Duplex because others can be handed in.
  response.assignSocket(socket as Socket);
  response.shouldKeepAlive = false;
  response.once("finish", () => {
    socket.end();
    // What the caller still sends is dropped: unread, it would reset the connection before the caller has
    // read the answer.
    socket.resume();
    const late = clock.timer(LAST_ANSWER_MS, () => socket.destroy());
    socket.once("close", () => late.cancel());
  });
  // Until the handshake is answered nothing else sees that the caller has left. Its answer takes the
  // connection from the response.
  socket.once("end", () => void (response.socket === null || socket.destroy()));
  socket.on("error", () => socket.destroy());
  return response;
}

function cannotListen({ host, port }: ListenAddress, error: NodeJS.ErrnoException): Error {
  const reason =
    error.code === "EADDRINUSE" ? "another program listens there; choose another with --listen" : error.message;
  return new Error(`cannot listen on ${host}:${port}: ${reason}`, { cause: error });
}

interface Closing {
  readonly waiting: LinkedList<CallerPresence>;
  readonly connections: Connections;
}

async function close(
  server: Server,
  { waiting, connections }: Closing,
  { context }: HttpParts,
  { deadlineMs, hurry }: Parameters<HttpServer["close"]>[0],
): Promise<void> {
  const done = new AbortController();
  const idling = closeIdle(server, connections, { clock: context.clock, closed: done.signal });
  const wakes = hurry === undefined ? done.signal : AbortSignal.any([done.signal, hurry]);
  const late = context.clock.sleep(deadlineMs, wakes).then(() => {
    if (done.signal.aborted) return;
    context.log.warn({ waiting: waiting.size }, "requests did not finish in time and are ended");
    for (const presence of waiting) presence.end();
    server.closeAllConnections();
  });
  await new Promise<void>((resolve) => void server.close(() => resolve()));
  done.abort();
  await Promise.all([late, idling]);
}

/**
 * A connection that is kept alive after its last answer would hold a closing server open until the deadline.
 */
async function closeIdle(
  server: Server,
  connections: Connections,
  { clock, closed }: { readonly clock: Clock; readonly closed: AbortSignal },
): Promise<void> {
  while (!closed.aborted) {
    connections.closeWaiting();
    server.closeIdleConnections();
    await clock.sleep(IDLE_LOOK_MS, closed);
  }
}
