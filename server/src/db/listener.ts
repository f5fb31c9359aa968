/**
 * The connection on which a server receives the notifications of other servers.
 *
 * Always:
 * - `onGap` is called after every connect, when notifications may have been missed, and at once when the
 *   connection is lost, so that a cache can empty itself; `isConnected` says whether a cache may be filled.
 * - A silent connection is detected within HEARTBEAT_MS plus HEARTBEAT_TIMEOUT_MS.
 *
 * It connects at the first `add` and reconnects until it is closed.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type pg from "pg";
import { CHANNELS, type Channel } from "./database.ts";

export interface ListenCallbacks {
  onPayload(payload: string): void;
  onGap(): void;
}

const HEARTBEAT_MS = 5_000;
const HEARTBEAT_TIMEOUT_MS = 5_000;
const RECONNECT_MS = 200;

export class Listener {
  isConnected = false;
  readonly #callbacks = new Map<Channel, Set<ListenCallbacks>>(CHANNELS.map((channel) => [channel, new Set()]));
  readonly #stopping = new AbortController();
  readonly #connect: () => Promise<pg.Client>;
  readonly #clock: Clock;
  readonly #log: Log;
  #loop: Promise<void> | null = null;

  constructor(options: { readonly connect: () => Promise<pg.Client>; readonly clock: Clock; readonly log: Log }) {
    this.#connect = options.connect;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  add(channel: Channel, callbacks: ListenCallbacks): () => void {
    this.#callbacks.get(channel)?.add(callbacks);
    if (this.isConnected) callbacks.onGap();
    this.#loop ??= this.#run();
    return () => void this.#callbacks.get(channel)?.delete(callbacks);
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const signal = this.#stopping.signal;
    while (!signal.aborted) {
      try {
        await this.#session(signal);
      } catch (error) {
        this.#log.debug({ error }, "the listening database connection ended");
      }
      if (this.isConnected) {
        this.isConnected = false;
        this.#gap();
      }
      await this.#clock.sleep(RECONNECT_MS, signal);
    }
  }

  /** One connection from its start to its end. */
  async #session(signal: AbortSignal): Promise<void> {
    const client = await this.#connect();
    const ended = new AbortController();
    client.on("error", () => ended.abort());
    client.on("end", () => ended.abort());
    client.on("notification", (note) => this.deliver(note.channel, note.payload ?? ""));
    const either = AbortSignal.any([signal, ended.signal]);
    try {
      await client.connect();
      await client.query(CHANNELS.map((channel) => `LISTEN ${channel}`).join("; "));
      this.isConnected = true;
      this.#gap();
      while (!either.aborted) {
        await this.#clock.sleep(HEARTBEAT_MS, either);
        if (!either.aborted) await this.#heartbeat(client, either);
      }
    } finally {
      // Not awaited: a dead connection would wait for its peer to close.
      client.end().catch(() => undefined);
    }
  }

  async #heartbeat(client: pg.Client, signal: AbortSignal): Promise<void> {
    const answered = client.query("SELECT 1").then(() => true);
    const late = this.#clock.sleep(HEARTBEAT_TIMEOUT_MS, signal).then(() => false);
    answered.catch(() => undefined);
    if (!(await Promise.race([answered, late])) && !signal.aborted) throw new Error("no answer to a heartbeat");
  }

  /** Calls back for payloads, separated by newlines. */
  deliver(channel: string, joined: string): void {
    const callbacks = this.#callbacks.get(channel as Channel) ?? [];
    for (const payload of joined.split("\n")) for (const callback of callbacks) callback.onPayload(payload);
  }

  #gap(): void {
    for (const set of this.#callbacks.values()) for (const callback of set) callback.onGap();
  }
}
