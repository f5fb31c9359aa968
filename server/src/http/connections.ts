/**
 * Bounds the connections of the public listener.
 *
 * Always:
 * - There are never more than the process has descriptors for. When all are in use, idle ones (without a
 *   head, or between two requests) are closed, first of the address that has most. So silent connections keep
 *   no client out; a new one is answered 503 only when every connection has a running request.
 * - One address has a share of them, above which it is answered 429, unless it is a proxy's or this host's.
 * - At most PIPELINED_MAX requests of a connection wait for their answers. More are not answered: the
 *   connection ends.
 * - A refused or broken connection is answered and closed soon, whatever its caller does.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { LAST_ANSWER_MS } from "../fairness/bounds.ts";
import type { TrustedProxies } from "../fairness/caller-address.ts";

/** The share of all connections that is closed at once when there is no room, so that searching is rare. */
const EVICTED_SHARE = 1 / 64;
/** Enough to send the head of a request. */
const NEW_MS = 1_000;
/**
 * One read of Node's has over a thousand short requests, all of which would begin at once, and keep their
 * answers until they are read.
 */
const PIPELINED_MAX = 16;
/** Above this number of refusals being sent, connections are closed without an answer. */
const CLOSING_MAX = 256;

interface Connection {
  readonly socket: Socket;
  readonly address: string;
  /** By the monotonic clock. */
  readonly since: number;
  /** The response to its last request; undefined: it has sent none. */
  last: ServerResponse | undefined;
  /** Responses before it that are not sent yet. */
  earlier: ServerResponse[];
}

const NONE: ServerResponse[] = [];

export interface ConnectionsOptions {
  readonly max: number;
  readonly perAddress: number;
  readonly proxies: TrustedProxies;
  readonly clock: Clock;
  readonly requestId: () => string;
}

export class Connections {
  readonly #options: ConnectionsOptions;
  /** In the order in which they came. */
  readonly #all = new Map<Socket, Connection>();
  readonly #byAddress = new Map<string, number>();
  #closing = 0;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#all.size;
  }

  /** Whether the connection may stay; else it has been answered. */
  admit(socket: Socket): boolean {
    const { max, perAddress, proxies, clock } = this.#options;
    const peer = socket.remoteAddress;
    // The caller has already disconnected.
    if (peer === undefined) {
      socket.destroy();
      return false;
    }
    const { address } = proxies.callerOf(peer, undefined);
    const ofAddress = this.#byAddress.get(address) ?? 0;
    if (ofAddress >= perAddress && !proxies.has(peer)) {
      this.#refuse(
        socket,
        "429 Too Many Requests",
        "rate_limited",
        `this address has ${ofAddress} connections open, which is the maximum`,
      );
      return false;
    }
    if (this.#all.size >= max) this.#makeRoom();
    if (this.#all.size >= max) {
      this.#refuse(socket, "503 Service Unavailable", "unavailable", "all connections of this server are in use");
      return false;
    }
    this.#all.set(socket, { socket, address, since: clock.monotonic(), last: undefined, earlier: NONE });
    this.#byAddress.set(address, ofAddress + 1);
    socket.once("close", () => this.#forget(socket));
    return true;
  }

  /** A request arrived on it. Whether it may be answered; else the connection was ended. */
  began(socket: Socket, response: ServerResponse): boolean {
    const connection = this.#all.get(socket);
    if (connection === undefined) return true;
    const { last } = connection;
    const earlier = last === undefined || isOver(last) ? NONE : [...connection.earlier.filter(isAwaited), last];
    if (earlier.length >= PIPELINED_MAX) {
      socket.destroy();
      return false;
    }
    connection.last = response;
    connection.earlier = earlier;
    return true;
  }

  /** Closes connections without a running request, for a server that stops. */
  closeWaiting(): void {
    for (const { socket, last } of this.#all.values()) if (last === undefined || isOver(last)) socket.destroy();
  }

  /** Sends the text and closes, after LAST_ANSWER_MS at the latest. */
  closeWith(socket: Socket, text: string): void {
    if (this.#closing >= CLOSING_MAX) {
      socket.destroy();
      return;
    }
    this.#closing += 1;
    const late = this.#options.clock.timer(LAST_ANSWER_MS, () => socket.destroy());
    socket.once("close", () => {
      this.#closing -= 1;
      late.cancel();
    });
    socket.on("error", () => socket.destroy());
    socket.end(text);
  }

  #refuse(socket: Socket, status: string, code: string, why: string): void {
    const text = `${why}; try again in a moment`;
    this.closeWith(
      socket,
      `HTTP/1.1 ${status}\r\nx-request-id: ${this.#options.requestId()}\r\nx-error-code: ${code}\r\nretry-after: 1\r\n` +
        `content-type: text/plain; charset=utf-8\r\ncontent-length: ${text.length}\r\nconnection: close\r\n\r\n${text}`,
    );
    // Its input is discarded: unread input would reset the connection before the caller has read the answer.
    socket.resume();
  }

  #forget(socket: Socket): void {
    const connection = this.#all.get(socket);
    if (connection === undefined) return;
    this.#all.delete(socket);
    const left = (this.#byAddress.get(connection.address) ?? 1) - 1;
    if (left > 0) this.#byAddress.set(connection.address, left);
    else this.#byAddress.delete(connection.address);
  }

  /**
   * Closes first connections that never sent a request in time, then idle ones, then new ones; oldest first.
   */
  #makeRoom(): void {
    const wanted = Math.max(1, Math.floor(this.#options.max * EVICTED_SHARE));
    const waiting = [...this.#all.values()].filter(({ last }) => last === undefined || isOver(last));
    const now = this.#options.clock.monotonic();
    const rank = ({ last, since }: Connection): number => (last !== undefined ? 1 : now - since >= NEW_MS ? 2 : 0);
    const weight = (connection: Connection): number =>
      (this.#byAddress.get(connection.address) ?? 0) * 3 + rank(connection);
    waiting.sort((one, other) => weight(other) - weight(one));
    for (const { socket } of waiting.slice(0, wanted)) {
      this.#forget(socket);
      socket.destroy();
    }
  }
}

const isAwaited = (response: ServerResponse): boolean => !isOver(response);
const isOver = (response: ServerResponse): boolean => response.writableFinished || response.destroyed;
