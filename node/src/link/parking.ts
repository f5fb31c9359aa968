/**
 * The connections that a node keeps parked at every server and every ingress of its fleet, so that these can
 * call it although nothing can connect to it.
 *
 * The bytes before HTTP are described in contract/src/link/fleet.ts. In memory only.
 *
 * Always:
 * - On a connection at an ingress only ports of machines are opened.
 * - At each server that listens, IDLE_MIN to IDLE_MAX connections are parked, more while many are used. When
 *   a server uses one, another is opened at once.
 * - A connection on which the server has not answered a PING until the next one is closed.
 * - While a server cannot be reached, one attempt at a time is made, after pauses of RETRY_MS_MIN to
 *   RETRY_MS_MAX, at each of its addresses in turn. So it is while a server closes connections at once and
 *   says nothing on them, as it does when the node was removed.
 */
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Clock, Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import {
  CLAIM,
  type FleetListener,
  INGRESS_IDENTITY,
  PARKED_PROTOCOL,
  PING,
  PING_MS,
  SERVER_IDENTITY,
} from "@flotilla/contract/link/fleet";
import { endpointOf, explained, fleetOptions, openTls } from "./fleet-tls.ts";
import type { Membership } from "./membership.ts";

const IDLE_MIN = 4;
const IDLE_MAX = 32;
const RETRY_MS_MIN = 100;
const RETRY_MS_MAX = 3_000;

export interface ParkingOptions {
  readonly membership: Membership;
  /** Serves HTTP on a connection with `peer`. */
  readonly serve: (socket: Socket, peer: Peer) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** What is at the other end of a connection. */
export type Peer = "server" | "ingress";

const IDENTITIES: Readonly<Record<Peer, string>> = { server: SERVER_IDENTITY, ingress: INGRESS_IDENTITY };

/** The parked connections at all servers and ingresses, as the membership names them. */
export class Parking {
  readonly #options: ParkingOptions;
  readonly #lots = new Map<string, Lot>();
  #isClosed = false;

  constructor(options: ParkingOptions) {
    this.#options = options;
    options.membership.watch(() => this.#update());
    this.#update();
  }

  /** Closes the idle connections, and opens no more. */
  close(): void {
    this.#isClosed = true;
    for (const lot of this.#lots.values()) lot.close();
    this.#lots.clear();
  }

  #update(): void {
    if (this.#isClosed) return;
    const { listeners, ingresses } = this.#options.membership;
    const desired = new Map<string, readonly [Peer, FleetListener]>();
    for (const each of listeners) desired.set(keyOf("server", each), ["server", each]);
    for (const each of ingresses) desired.set(keyOf("ingress", each), ["ingress", each]);
    for (const [key, lot] of this.#lots) {
      if (desired.has(key)) continue;
      this.#lots.delete(key);
      lot.close();
    }
    for (const [key, [peer, { addresses }]] of desired)
      if (!this.#lots.has(key)) this.#lots.set(key, new Lot(this.#options, peer, addresses));
  }
}

const keyOf = (peer: Peer, { id, addresses }: FleetListener): string => `${peer} ${id} ${addresses.join(" ")}`;

/** The connections parked at one server or ingress. */
class Lot {
  readonly #options: ParkingOptions;
  readonly #peer: Peer;
  readonly #addresses: readonly string[];
  readonly #idle = new Set<Socket>();
  #busy = 0;
  #opening = 0;
  #failures = 0;
  /** Connections that were closed at once, since the server has said something on one. */
  #refusals = 0;
  #turn = 0;
  #pause: Timer | null = null;
  #isClosed = false;

  constructor(options: ParkingOptions, peer: Peer, addresses: readonly string[]) {
    this.#options = options;
    this.#peer = peer;
    this.#addresses = addresses;
    this.#fill();
  }

  /** Closes what is idle. What servers use stays open. */
  close(): void {
    this.#isClosed = true;
    this.#pause?.cancel();
    for (const socket of this.#idle) socket.destroy();
  }

  #fill(): void {
    if (this.#isClosed || this.#pause !== null || this.#addresses.length === 0) return;
    const target =
      this.#failures + this.#refusals > 0 ? 1 : Math.min(IDLE_MAX, Math.max(IDLE_MIN, Math.ceil(this.#busy / 2)));
    while (this.#idle.size + this.#opening < target) void this.#open();
  }

  /** Never rejects. */
  async #open(): Promise<void> {
    const { clock, log } = this.#options;
    const address = this.#addresses[this.#turn % this.#addresses.length] ?? "";
    this.#opening += 1;
    try {
      this.#park(await this.#connect(address));
      if (this.#failures > 0) log.info({ server: address }, "the server can be reached again");
      this.#failures = 0;
    } catch (error) {
      this.#turn += 1;
      this.#failures += 1;
      const level = this.#failures === 1 ? "warn" : "debug";
      log[level](
        { server: address, reason: messageOf(explained(error, clock)) },
        "no connection to the server; trying again",
      );
      this.#pauseAfter(this.#failures);
    } finally {
      this.#opening -= 1;
    }
    this.#fill();
  }

  /** Nothing is opened for some time, unless it is that already. */
  #pauseAfter(failures: number): void {
    const ms = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(failures, 10));
    this.#pause ??= this.#options.clock.timer(ms, () => {
      this.#pause = null;
      this.#fill();
    });
  }

  /** Counts a refusal; several that were closed together count as one. */
  #onRefused(): void {
    if (this.#isClosed || this.#pause !== null) return;
    this.#refusals += 1;
    const level = this.#refusals === 1 ? "warn" : "debug";
    this.#options.log[level]({ servers: this.#addresses }, "the server closes this node's connections; trying again");
    this.#pauseAfter(this.#refusals);
  }

  #onHeard(): void {
    if (this.#refusals === 0) return;
    this.#refusals = 0;
    this.#options.log.info({ servers: this.#addresses }, "the server keeps this node's connections again");
    this.#fill();
  }

  async #connect(address: string): Promise<TLSSocket> {
    const { identity, authority } = this.#options.membership;
    if (identity === null || authority === null) throw new Error("this node has not joined");
    const trusted = fleetOptions(identity, authority, IDENTITIES[this.#peer]);
    const options = { ...endpointOf(address), ...trusted, ALPNProtocols: [PARKED_PROTOCOL] };
    const socket = await openTls(options, this.#options.clock);
    if (socket.alpnProtocol === PARKED_PROTOCOL && !this.#isClosed) return socket;
    socket.destroy();
    throw new Error("it does not listen for nodes");
  }

  #park(socket: TLSSocket): void {
    const { clock, serve } = this.#options;
    const parkedAt = clock.monotonic();
    let isAnswered = true;
    let isHeard = false;
    let timer = clock.timer(PING_MS, () => ping());
    const ping = (): void => {
      if (!isAnswered) return void socket.destroy();
      isAnswered = false;
      socket.write(Buffer.from([PING]));
      timer = clock.timer(PING_MS, ping);
    };
    const leave = (): void => {
      timer.cancel();
      socket.off("readable", onReadable);
      socket.off("close", leave);
      socket.off("end", onEnd);
      this.#idle.delete(socket);
      if (!isHeard && clock.monotonic() - parkedAt < RETRY_MS_MAX) this.#onRefused();
      this.#fill();
    };
    const onEnd = (): void => void socket.destroy();
    const onReadable = (): void => {
      for (let byte: Buffer | null; (byte = socket.read(1) as Buffer | null) !== null; ) {
        isAnswered = true;
        isHeard = true;
        this.#onHeard();
        if (byte[0] === PING) continue;
        if (byte[0] !== CLAIM) return void socket.destroy();
        this.#busy += 1;
        socket.once("close", () => {
          this.#busy -= 1;
          this.#fill();
        });
        leave();
        socket.write(Buffer.from([CLAIM]));
        serve(socket, this.#peer);
        return;
      }
    };
    this.#idle.add(socket);
    socket.on("close", leave);
    socket.on("end", onEnd);
    socket.on("readable", onReadable);
  }
}
