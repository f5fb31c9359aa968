/**
 * Connections to guests that wait for another request: one pool for each boot and port of a machine.
 *
 * Always:
 * - a connection is kept only after an answer that ended exactly (answer-frame.ts), and closed when a byte
 *   arrives that no request asked for, when the guest ends it, and after IDLE_MS, or sooner where the guest
 *   says so;
 * - it is used for the boot, the port and the node that it was made for, so never for another tenant;
 * - their number is bounded, for a machine and for all; the one that waited longest makes room for another
 *   machine's;
 * - while a new connection to the port waits for an answer for SLOW_MS or more, none is kept: a guest that
 *   serves one connection at a time would answer only once the idle ones are closed.
 *
 * An idle connection is not activity: autostop does not see it. A crash closes all of them.
 */
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "@flotilla/base/clock";
import type { GuestConnection } from "./guest-connection.ts";
import type { GuestPort } from "./guest-port.ts";

/** Shorter than the five seconds after which Node and Apache close, so that most closing is done here. */
const IDLE_MS = 4_000;
/** A guest that says when it closes is believed, less what a request may take to reach it. */
const MARGIN_MS = 1_000;
const PER_MACHINE_MAX = 32;
const SLOW_MS = 250;
/** How often connections that have waited too long are closed. */
const SWEEP_MS = 1_000;

interface Idle {
  readonly connection: GuestConnection;
  readonly key: string;
  readonly machineId: string;
  /** By the monotonic clock. */
  readonly until: number;
  readonly close: () => void;
}

export class IdleConnections {
  readonly #clock: Pick<Clock, "monotonic" | "timer">;
  readonly #max: number;
  /** All of them; the one that has waited longest is first. */
  readonly #all = new Set<Idle>();
  readonly #byKey = new Map<string, Idle[]>();
  readonly #perMachine = new Map<string, number>();
  /** How many new connections wait for an answer, by key. */
  readonly #slow = new Map<string, number>();
  #sweeping: Timer | null = null;
  #isClosed = false;

  constructor(clock: Pick<Clock, "monotonic" | "timer">, max: number) {
    this.#clock = clock;
    this.#max = max;
  }

  /** The connection that was used last; undefined: none waits. */
  take(port: GuestPort): GuestConnection | undefined {
    const idle = this.#byKey.get(keyOf(port));
    for (let latest = idle?.at(-1); latest !== undefined; latest = idle?.at(-1)) {
      this.#forget(latest);
      if (latest.until > this.#clock.monotonic() && isUsable(latest.connection))
        return { ...latest.connection, isReused: true };
      latest.connection.socket.destroy();
    }
    return undefined;
  }

  /** Keeps a connection whose answer has ended, or closes it. */
  keep(port: GuestPort, connection: GuestConnection): void {
    const { socket, frame } = connection;
    const key = keyOf(port);
    const idleMs = Math.min(IDLE_MS, frame.keepMs - MARGIN_MS);
    const count = this.#perMachine.get(port.machineId) ?? 0;
    const isKept =
      !this.#isClosed && isUsable(connection) && idleMs > 0 && count < PER_MACHINE_MAX && !this.#slow.has(key);
    if (!isKept) return void socket.destroy();
    const idle: Idle = {
      connection,
      key,
      machineId: port.machineId,
      until: this.#clock.monotonic() + idleMs,
      close: () => {
        this.#forget(idle);
        socket.destroy();
      },
    };
    this.#add(idle);
    for (const event of CLOSING) socket.once(event, idle.close);
    // Without a reader the end of the connection would not be seen.
    socket.resume();
    const [oldest] = this.#all;
    if (this.#all.size > this.#max) oldest?.close();
    this.#sweeping ??= this.#clock.timer(SWEEP_MS, () => this.#sweep());
  }

  /**
   * A request on a new connection waits for its answer until the function that is returned is called. Once.
   */
  waits(port: GuestPort): () => void {
    const key = keyOf(port);
    let isSlow = false;
    const timer = this.#clock.timer(SLOW_MS, () => {
      isSlow = true;
      this.#slow.set(key, (this.#slow.get(key) ?? 0) + 1);
      for (const idle of this.#byKey.get(key)?.slice() ?? []) idle.close();
    });
    return () => {
      timer.cancel();
      if (!isSlow) return;
      const left = (this.#slow.get(key) ?? 1) - 1;
      if (left > 0) this.#slow.set(key, left);
      else this.#slow.delete(key);
    };
  }

  /** How many wait. */
  get size(): number {
    return this.#all.size;
  }

  /** Closes all, and keeps none from then on. */
  close(): void {
    this.#isClosed = true;
    this.#sweeping?.cancel();
    for (const idle of [...this.#all]) idle.close();
  }

  #sweep(): void {
    this.#sweeping = null;
    const now = this.#clock.monotonic();
    for (const idle of [...this.#all]) if (idle.until <= now) idle.close();
    if (this.#all.size > 0) this.#sweeping = this.#clock.timer(SWEEP_MS, () => this.#sweep());
  }

  #add(idle: Idle): void {
    this.#all.add(idle);
    const sameKey = this.#byKey.get(idle.key);
    if (sameKey === undefined) this.#byKey.set(idle.key, [idle]);
    else sameKey.push(idle);
    this.#perMachine.set(idle.machineId, (this.#perMachine.get(idle.machineId) ?? 0) + 1);
  }

  #forget(idle: Idle): void {
    if (!this.#all.delete(idle)) return;
    for (const event of CLOSING) idle.connection.socket.off(event, idle.close);
    const sameKey = this.#byKey.get(idle.key) ?? [];
    sameKey.splice(sameKey.indexOf(idle), 1);
    if (sameKey.length === 0) this.#byKey.delete(idle.key);
    const left = (this.#perMachine.get(idle.machineId) ?? 1) - 1;
    if (left > 0) this.#perMachine.set(idle.machineId, left);
    else this.#perMachine.delete(idle.machineId);
  }
}

const CLOSING = ["data", "end", "error", "close"] as const;

const keyOf = ({ machineId, bootId, port, node }: GuestPort): string =>
  `${machineId} ${bootId} ${port} ${node.address}`;

const isOpen = (socket: Duplex): boolean =>
  !socket.destroyed && !socket.readableEnded && socket.writable && socket.readableLength === 0;

const isUsable = ({ socket, frame }: GuestConnection): boolean => frame.isWhole && isOpen(socket);
