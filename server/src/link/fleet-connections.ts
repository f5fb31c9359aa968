/**
 * Every open connection with a node that has shown a certificate, and its end when the node's credential is
 * revoked.
 *
 * Always:
 * - A notification of a change of a node causes a check in the database at once, on every server; a
 *   connection whose key the node no longer has is destroyed. All are checked every FULL_LOOK_MS, and every
 *   LOOK_MS while no notifications arrive.
 * - A new connection is checked before it is used, and again within LOOK_MS: its node may have been revoked
 *   in between.
 * - While the database does not answer, open connections stay, and new ones are refused.
 *
 * In memory only: a crash ends every connection.
 */
import type { Duplex } from "node:stream";
import type { Timer } from "@flotilla/base/clock";
import type { Context } from "../context.ts";
import { listNodeKeys } from "./fleet-store.ts";

const LOOK_MS = 400;
const FULL_LOOK_MS = 5_000;

interface Entry {
  readonly nodeId: string;
  readonly keyHash: string;
  readonly socket: Duplex;
  isSeen: boolean;
}

export class FleetConnections {
  readonly #context: Context;
  readonly #entries = new Set<Entry>();
  readonly #unlisten: () => void;
  #unchecked = new Set<Entry>();
  #isChecking = false;
  #timer: Timer | null = null;
  #fullLookAt = 0;

  constructor(context: Context) {
    this.#context = context;
    const recheck = (mustBeChecked: (entry: Entry) => boolean): void =>
      this.#recheck([...this.#entries].filter(mustBeChecked));
    this.#unlisten = context.db.listen("nodes", {
      onPayload: (nodeId) => recheck((entry) => entry.nodeId === nodeId),
      onGap: () => recheck(() => true),
    });
  }

  /** How many connections a node has. */
  countOf(nodeId: string): number {
    let count = 0;
    for (const entry of this.#entries) if (entry.nodeId === nodeId) count += 1;
    return count;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Whether the node may connect with this key now. Rejects when the database does not answer. */
  async isAdmitted(nodeId: string, keyHash: string): Promise<boolean> {
    return (await listNodeKeys(this.#context.db, [nodeId])).get(nodeId) === keyHash;
  }

  /** Watches a connection until it closes. */
  watch(nodeId: string, keyHash: string, socket: Duplex): void {
    const entry: Entry = { nodeId, keyHash, socket, isSeen: false };
    this.#entries.add(entry);
    socket.once("close", () => {
      this.#entries.delete(entry);
      this.#unchecked.delete(entry);
    });
    this.#timer ??= this.#context.clock.timer(LOOK_MS, () => this.#tick());
  }

  /** Destroys every connection. */
  close(): void {
    this.#unlisten();
    this.#timer?.cancel();
    for (const { socket } of this.#entries) socket.destroy();
    this.#entries.clear();
  }

  #tick(): void {
    this.#timer = null;
    const { clock, db } = this.#context;
    const isFull = !db.isListening() || clock.monotonic() - this.#fullLookAt >= FULL_LOOK_MS;
    if (isFull) this.#fullLookAt = clock.monotonic();
    this.#recheck([...this.#entries].filter((entry) => isFull || !entry.isSeen));
    if (this.#entries.size > 0) this.#timer ??= clock.timer(LOOK_MS, () => this.#tick());
  }

  #recheck(entries: readonly Entry[]): void {
    for (const entry of entries) this.#unchecked.add(entry);
    if (this.#unchecked.size > 0 && !this.#isChecking) void this.#check();
  }

  /** Checks until nothing is left to check. Never rejects. */
  async #check(): Promise<void> {
    const { db, log } = this.#context;
    this.#isChecking = true;
    while (this.#unchecked.size > 0) {
      const entries = [...this.#unchecked];
      this.#unchecked = new Set();
      try {
        const keys = await listNodeKeys(db, [...new Set(entries.map(({ nodeId }) => nodeId))]);
        for (const entry of entries) {
          if (keys.get(entry.nodeId) === entry.keyHash) entry.isSeen = true;
          else entry.socket.destroy(new Error(`the credential of node ${entry.nodeId} was revoked`));
        }
      } catch (error) {
        // They stay unchecked, and the next tick tries again.
        for (const entry of entries) entry.isSeen = false;
        log.debug({ error }, "open connections of nodes could not be checked");
      }
    }
    this.#isChecking = false;
  }
}
