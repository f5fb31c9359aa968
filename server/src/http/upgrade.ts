/**
 * WebSocket handshakes. An upgrade passes the same steps as every request; its handler then makes the
 * connection a WebSocket. A refusal before that is a plain answer, after which the connection ends.
 *
 * Always:
 * - Only a GET that requests a WebSocket, or another protocol from a machine, counts as an upgrade. A client
 *   that merely offers HTTP/2 is served as usual.
 * - A WebSocket is pinged every PING_PERIOD_MS. One that was silent for SILENCE_MS_MAX is ended, unless this
 *   server has paused reading it.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { type WebSocket, WebSocketServer } from "ws";

/** A connection that requests another protocol. */
export interface Upgrade {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes that arrived after the request. */
  readonly head: Buffer;
  /** Aborted when the server begins to stop: open connections should end soon. */
  readonly closing: AbortSignal;
}

/** A handler's answer 101: takes over the connection. `headers` are added to the answer. */
export type UpgradeHandler = (upgrade: Upgrade, headers: Readonly<Record<string, string>>) => void;

const PING_PERIOD_MS = 30_000;
const SILENCE_MS_MAX = 90_000;
/** Max size of one message, such as what is pasted into a terminal. */
const MESSAGE_BYTES_MAX = 1024 * 1024;

/**
 * Upgrades to other protocols are passed on to machines, except to HTTP and TLS, which the guest would speak
 * to this server.
 */
export function isUpgrade({ method, headers }: IncomingMessage, isPassed: boolean): boolean {
  const to = headers.upgrade ?? "";
  if (method !== "GET") return false;
  return /^websocket$/i.test(to) || (isPassed && /^[\w./-]+$/.test(to) && !/^(h2c?|http|tls)\b/i.test(to));
}

/** Names of protocols, each a token of RFC 9110. */
const PROTOCOLS = /^[\w!#$%&'*+.^`|~-]+(?:[\t ]*,[\t ]*[\w!#$%&'*+.^`|~-]+)*$/;

/**
 * Throws a Refusal when the request cannot become a WebSocket: what the library refuses itself has no request
 * id.
 */
export function checkHandshake(upgrade: Upgrade | undefined): void {
  if (upgrade === undefined)
    throw new Refusal("invalid_request", "this path opens a WebSocket; call it with a WebSocket client");
  const { "sec-websocket-key": key, "sec-websocket-version": version } = upgrade.message.headers;
  const { "sec-websocket-protocol": protocols } = upgrade.message.headers;
  const names = protocols?.split(",").map((name) => name.trim()) ?? [];
  if (protocols !== undefined && (!PROTOCOLS.test(protocols) || new Set(names).size < names.length))
    throw new Refusal("invalid_request", "sec-websocket-protocol is not a list of different names; leave it out");
  if (version !== "13" || !/^[+/0-9A-Za-z]{22}==$/.test(key ?? ""))
    throw new Refusal("invalid_request", "the WebSocket handshake needs a key, and version 13", {
      headers: { "sec-websocket-version": "13" },
    });
}

/** How long our close waits for the client's. */
const CLOSE_TIMEOUT_MS = 5_000;

// `closeTimeout` is documented, and not yet known to the types.
const options = { noServer: true, maxPayload: MESSAGE_BYTES_MAX, closeTimeout: CLOSE_TIMEOUT_MS };
const webSockets = new WebSocketServer(options);
const answerHeaders = new WeakMap<IncomingMessage, Readonly<Record<string, string>>>();
webSockets.on("headers", (lines, message) => {
  for (const [name, value] of Object.entries(answerHeaders.get(message) ?? {})) lines.push(`${name}: ${value}`);
});

/** Answers a handshake that checkHandshake() has accepted, and keeps the connection alive. */
export function acceptWebSocket(
  { message, socket, head }: Upgrade,
  headers: Readonly<Record<string, string>>,
  options: { readonly clock: Clock; readonly onOpen: (socket: WebSocket) => void },
): void {
  answerHeaders.set(message, headers);
  webSockets.handleUpgrade(message, socket, head, (webSocket) => {
    // A protocol error of the client ends the connection, and `close` is emitted.
    webSocket.on("error", () => undefined);
    options.onOpen(webSocket);
    void keepAlive(webSocket, options.clock);
  });
}

async function keepAlive(socket: WebSocket, clock: Clock): Promise<void> {
  const closed = new AbortController();
  let lastSeenAt = clock.monotonic();
  const markSeen = (): void => {
    lastSeenAt = clock.monotonic();
  };
  for (const event of ["message", "ping", "pong"]) socket.on(event, markSeen);
  socket.on("close", () => closed.abort());
  let pingAt = clock.monotonic() + PING_PERIOD_MS;
  while (!closed.signal.aborted) {
    // Not only at pings: what answers them is silent for a little less than a whole number of periods.
    const nextAt = Math.min(pingAt, lastSeenAt + SILENCE_MS_MAX);
    await clock.sleep(nextAt - clock.monotonic(), closed.signal);
    if (closed.signal.aborted) return;
    if (socket.isPaused) markSeen();
    const now = clock.monotonic();
    if (now - lastSeenAt >= SILENCE_MS_MAX) return socket.terminate();
    if (now < pingAt) continue;
    pingAt = now + PING_PERIOD_MS;
    if (socket.readyState === socket.OPEN) socket.ping();
  }
}
