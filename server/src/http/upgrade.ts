/**
 * WebSocket handshakes: an upgrade goes through the same steps as every request, and only when its handler says so does
 * the connection become a WebSocket. A refusal before that is a plain answer, after which the connection ends.
 *
 * Always: only a GET that asks for a WebSocket, or asks a machine for something else, is taken for one, so that a client
 * which offers HTTP/2 in passing is served as usual; a WebSocket is pinged every PING_PERIOD_MS, and one that was silent for SILENCE_MS_MAX is ended, unless it is
 * we who do not read it.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { type WebSocket, WebSocketServer } from "ws";

/** A connection that asks to become something else. */
export interface Upgrade {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  /** What came behind the request already. */
  readonly head: Buffer;
  /** Aborted when the server begins to stop: what is open should end soon. */
  readonly closing: AbortSignal;
}

/** What a handler answers 101 with: takes the connection over. `headers` belong into the answer. */
export type TakeUpgrade = (upgrade: Upgrade, headers: Readonly<Record<string, string>>) => void;

const BRIDGE_PATH = /^\/v1\/machines\/[^/?]+\/connect\//;

const PING_PERIOD_MS = 30_000;
const SILENCE_MS_MAX = 90_000;
/** Of one message, such as what is pasted into a terminal. */
const MESSAGE_BYTES_MAX = 1024 * 1024;

/** A bridge hands any other upgrade on, but for those to HTTP/2, which a guest would have to speak to this server. */
export function isUpgrade({ method, url, headers }: IncomingMessage, isForMachine: boolean): boolean {
  const to = headers.upgrade ?? "";
  if (method !== "GET") return false;
  return (
    /^websocket$/i.test(to) ||
    ((isForMachine || BRIDGE_PATH.test(url ?? "")) && /^[\w./-]+$/.test(to) && !/^(h2c?|http|tls)\b/i.test(to))
  );
}

/** Throws a Refusal when the request cannot become a WebSocket. */
export function checkHandshake(upgrade: Upgrade | undefined): void {
  if (upgrade === undefined)
    throw new Refusal("invalid_request", "this path opens a WebSocket; call it with a WebSocket client");
  const { "sec-websocket-key": key, "sec-websocket-version": version } = upgrade.message.headers;
  if (version !== "13" || !/^[+/0-9A-Za-z]{22}==$/.test(key ?? ""))
    throw new Refusal("invalid_request", "the WebSocket handshake needs a key, and version 13", {
      "sec-websocket-version": "13",
    });
}

/** How long an end that we began waits for the client's word. */
const CLOSE_TIMEOUT_MS = 5_000;

// `closeTimeout` is documented, and not yet known to the types.
const options = { noServer: true, maxPayload: MESSAGE_BYTES_MAX, closeTimeout: CLOSE_TIMEOUT_MS };
const webSockets = new WebSocketServer(options);
const answerHeaders = new WeakMap<IncomingMessage, Readonly<Record<string, string>>>();
webSockets.on("headers", (lines, message) => {
  for (const [name, value] of Object.entries(answerHeaders.get(message) ?? {})) lines.push(`${name}: ${value}`);
});

/** Answers the handshake, which checkHandshake() has found good, and keeps the connection alive. */
export function acceptWebSocket(
  { message, socket, head }: Upgrade,
  headers: Readonly<Record<string, string>>,
  options: { readonly clock: Clock; readonly onOpen: (socket: WebSocket) => void },
): void {
  answerHeaders.set(message, headers);
  webSockets.handleUpgrade(message, socket, head, (webSocket) => {
    // A client that breaks the protocol ends its connection; `close` tells who listens.
    webSocket.on("error", () => undefined);
    options.onOpen(webSocket);
    void keepAlive(webSocket, options.clock);
  });
}

async function keepAlive(socket: WebSocket, clock: Clock): Promise<void> {
  const closed = new AbortController();
  let heardAt = clock.monotonic();
  const heard = (): void => {
    heardAt = clock.monotonic();
  };
  for (const event of ["message", "ping", "pong"]) socket.on(event, heard);
  socket.on("close", () => closed.abort());
  while (!closed.signal.aborted) {
    await clock.sleep(PING_PERIOD_MS, closed.signal);
    if (closed.signal.aborted) return;
    if (socket.isPaused) heard();
    if (clock.monotonic() - heardAt >= SILENCE_MS_MAX) return socket.terminate();
    if (socket.readyState === socket.OPEN) socket.ping();
  }
}
