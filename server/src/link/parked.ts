/**
 * The connections that nodes have opened and parked here, and the choice of one when this server calls a
 * node.
 *
 * The bytes before HTTP are described in contract/src/link/fleet.ts. In memory only: nodes park new ones
 * after a crash.
 *
 * Always:
 * - A connection is given away once, and only after the node has agreed, so a dead one costs a call time and
 *   not its success.
 * - A node has at most PARKED_MAX connections here. One that was silent for SILENCE_MS is destroyed. At most
 *   one answer to a PING waits on each.
 * - The most recently parked is used first: it is the least likely to be dead.
 * - When a node does not answer on one, those on which it was silent meanwhile are destroyed too, and the
 *   call gets one that the node opens next. So a call waits for CLAIM_MS once, however many connections died
 *   with a path.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import { CLAIM, PING, PING_MS } from "@flotilla/contract/link/fleet";
import type { Duplex } from "node:stream";

const PARKED_MAX = 64;
const SILENCE_MS = 3 * PING_MS;
/** How long a node may take to agree. */
const CLAIM_MS = 3_000;
/** How long a call waits for a node that has parked none: it may be opening one. */
const WAIT_MS = 3_000;
/** How long it waits while this server is new: nodes learn of it with their next heartbeat. */
const WAIT_NEW_MS = 10_000;
const NEW_MS = 20_000;
const WAITING_MAX = 4_096;
/** A node that has had no parked connection for this time is not reached. */
const MISSING_MS = 15_000;

interface Waiter {
  give(socket: Duplex): void;
  fail(error: Error): void;
}

interface Parked {
  readonly socket: Duplex;
  /** Stops watching it. */
  readonly release: () => void;
  /** By the monotonic clock. */
  heardAt: number;
}

interface NodeEntry {
  readonly parked: Parked[];
  readonly waiters: Set<Waiter>;
}

export class ParkedConnections {
  readonly #clock: Clock;
  readonly #nodes = new Map<string, NodeEntry>();
  readonly #startedAt: number;
  /** When nodes last had a parked connection, or were first asked about, of those that have none. */
  readonly #lastHad = new Map<string, number>();
  #sweeping: Timer | null = null;
  #waiting = 0;
  #isClosed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startedAt = clock.monotonic();
  }

  /** How many connections a node has parked. */
  countOf(nodeId: string): number {
    return this.#nodes.get(nodeId)?.parked.length ?? 0;
  }

  /** Whether a node has had no connection here for so long, since that was first asked, that calls fail. */
  isMissing(nodeId: string): boolean {
    if (this.countOf(nodeId) > 0) return false;
    const now = this.#clock.monotonic();
    const since = this.#lastHad.get(nodeId);
    if (since === undefined) this.#lastHad.set(nodeId, now);
    return since !== undefined && now - since > MISSING_MS;
  }

  /** Accepts a connection of a node. One too many is destroyed. */
  park(nodeId: string, socket: Duplex): void {
    const entry = this.#entryOf(nodeId);
    if (this.#isClosed || entry.parked.length >= PARKED_MAX) {
      socket.destroy();
      return;
    }
    const onReadable = (): void => {
      for (let chunk: Buffer | null; (chunk = socket.read() as Buffer | null) !== null; ) {
        if (chunk.some((byte) => byte !== PING)) return void socket.destroy();
        parked.heardAt = this.#clock.monotonic();
        // A node that pings and does not read gets one answer for all.
        if (socket.writableLength === 0) socket.write(Buffer.from([PING]));
      }
    };
    const release = (): void => {
      socket.off("readable", onReadable);
      socket.off("end", onEnd);
      socket.off("close", release);
      const at = entry.parked.indexOf(parked);
      if (at >= 0) entry.parked.splice(at, 1);
      if (entry.parked.length === 0) this.#lastHad.set(nodeId, this.#clock.monotonic());
      this.#forgetEmpty(nodeId, entry);
    };
    const onEnd = (): void => void socket.destroy();
    const parked: Parked = { socket, release, heardAt: this.#clock.monotonic() };
    socket.on("error", onEnd);
    socket.on("end", onEnd);
    socket.on("readable", onReadable);
    socket.on("close", release);
    entry.parked.push(parked);
    this.#sweeping ??= this.#clock.timer(PING_MS, () => this.#sweep());
    const [waiter] = entry.waiters;
    if (waiter !== undefined) waiter.give(this.#unpark(entry));
  }

  /** A connection on which the node expects requests. Rejects when the node has none that works in time. */
  async take(nodeId: string): Promise<Duplex> {
    const now = (): number => this.#clock.monotonic();
    const deadline = now() + CLAIM_MS + this.#waitMs();
    for (;;) {
      const claimedAt = now();
      const socket = await this.#next(nodeId, Math.min(this.#waitMs(), Math.max(0, deadline - claimedAt)));
      const answer = await this.#claim(socket);
      if (answer === "agreed") return socket;
      socket.destroy();
      if (answer === "silent") this.#destroySilent(nodeId, claimedAt);
      // A node could park such connections without an end.
      if (now() >= deadline) throw new Error(`node ${nodeId} has no connection to this server that works`);
    }
  }

  /** Destroys the connections of a node on which nothing was received since then. */
  #destroySilent(nodeId: string, since: number): void {
    for (const { socket, heardAt } of [...(this.#nodes.get(nodeId)?.parked ?? [])])
      if (heardAt < since) socket.destroy();
  }

  close(): void {
    this.#isClosed = true;
    this.#sweeping?.cancel();
    for (const { parked, waiters } of this.#nodes.values()) {
      for (const waiter of waiters) waiter.fail(new Error("this server is stopping"));
      for (const { socket } of [...parked]) socket.destroy();
    }
  }

  #waitMs(): number {
    return this.#clock.monotonic() - this.#startedAt < NEW_MS ? WAIT_NEW_MS : WAIT_MS;
  }

  #unpark(entry: NodeEntry): Duplex {
    const parked = entry.parked.at(-1);
    if (parked === undefined) throw new Error("a node has no parked connection");
    parked.release();
    return parked.socket;
  }

  #next(nodeId: string, waitMs: number): Promise<Duplex> {
    const entry = this.#entryOf(nodeId);
    if (entry.parked.length > 0) return Promise.resolve(this.#unpark(entry));
    this.#forgetEmpty(nodeId, entry);
    if (this.#isClosed) return Promise.reject(new Error("this server is stopping"));
    if (this.#waiting >= WAITING_MAX)
      return Promise.reject(new Error("too many calls wait for a connection of a node"));
    return new Promise((resolve, reject) => {
      const waiting = this.#entryOf(nodeId);
      this.#waiting += 1;
      const end = (): void => {
        this.#waiting -= 1;
        timer.cancel();
        waiting.waiters.delete(waiter);
        this.#forgetEmpty(nodeId, waiting);
      };
      const waiter: Waiter = {
        give: (socket) => {
          end();
          resolve(socket);
        },
        fail: (error) => {
          end();
          reject(error);
        },
      };
      const timer = this.#clock.timer(waitMs, () =>
        waiter.fail(new Error(`node ${nodeId} has no connection open to this server`)),
      );
      waiting.waiters.add(waiter);
    });
  }

  /** What the node answers. `broken`: the connection was closed, or carries something else. */
  #claim(socket: Duplex): Promise<"agreed" | "silent" | "broken"> {
    return new Promise((resolve) => {
      const end = (answer: "agreed" | "silent" | "broken"): void => {
        timer.cancel();
        socket.off("readable", onReadable);
        socket.off("close", onClose);
        socket.off("end", onClose);
        resolve(answer === "agreed" && socket.destroyed ? "broken" : answer);
      };
      const onClose = (): void => end("broken");
      const onReadable = (): void => {
        for (let byte: Buffer | null; (byte = socket.read(1) as Buffer | null) !== null; ) {
          if (byte[0] !== PING) return end(byte[0] === CLAIM ? "agreed" : "broken");
        }
      };
      const timer = this.#clock.timer(CLAIM_MS, () => end("silent"));
      socket.on("close", onClose);
      socket.on("end", onClose);
      socket.on("readable", onReadable);
      if (socket.destroyed) return end("broken");
      socket.write(Buffer.from([CLAIM]));
    });
  }

  #sweep(): void {
    this.#sweeping = null;
    const oldest = this.#clock.monotonic() - SILENCE_MS;
    for (const { parked } of this.#nodes.values())
      for (const { socket, heardAt } of [...parked]) if (heardAt < oldest) socket.destroy();
    if (this.#nodes.size > 0) this.#sweeping = this.#clock.timer(PING_MS, () => this.#sweep());
  }

  #entryOf(nodeId: string): NodeEntry {
    let entry = this.#nodes.get(nodeId);
    if (entry === undefined) {
      entry = { parked: [], waiters: new Set() };
      this.#nodes.set(nodeId, entry);
    }
    return entry;
  }

  #forgetEmpty(nodeId: string, entry: NodeEntry): void {
    if (entry.parked.length === 0 && entry.waiters.size === 0 && this.#nodes.get(nodeId) === entry)
      this.#nodes.delete(nodeId);
  }
}
