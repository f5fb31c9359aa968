/**
 * Values kept in memory that notifications keep fresh: what a server reads on most requests and what changes seldom.
 *
 * Always:
 * - a change that is notified drops what it concerns; while notifications do not arrive nothing is kept, and when some may
 *   have been missed everything is dropped;
 * - what was read while a change came in is used once and not kept (the epoch);
 * - a key without a value is not kept, so that guessed keys cannot fill the memory; beyond `entriesMax` the entry that was
 *   kept first makes room.
 */
import type { Channel, Database } from "./database.ts";

/** On which channel changes come in, and which values one concerns; without `concerns` each drops everything. */
export interface NotifiedChange<Value> {
  readonly channel: Channel;
  readonly concerns?: (value: Value, payload: string) => boolean;
}

export interface NotifiedCacheOptions<Value> {
  readonly entriesMax: number;
  readonly changes: readonly NotifiedChange<Value>[];
}

export class NotifiedCache<Value> {
  readonly #db: Pick<Database, "listen" | "isListening">;
  readonly #entriesMax: number;
  readonly #known = new Map<string, Value>();
  readonly #unlisten: readonly (() => void)[];
  #epoch = 0;

  constructor(db: Pick<Database, "listen" | "isListening">, { entriesMax, changes }: NotifiedCacheOptions<Value>) {
    this.#db = db;
    this.#entriesMax = entriesMax;
    const onGap = (): void => this.forgetAll();
    this.#unlisten = changes.map(({ channel, concerns }) => {
      const onPayload = (payload: string): void =>
        concerns === undefined ? this.forgetAll() : this.forget((value) => concerns(value, payload));
      return db.listen(channel, { onPayload, onGap });
    });
  }

  /** undefined: not kept; `read` asks. */
  get(key: string): Value | undefined {
    return this.#known.get(key);
  }

  /** What `ask` gives, kept from now on where that is safe. */
  async read<Asked extends Value | undefined>(key: string, ask: () => Promise<Asked>): Promise<Asked> {
    const epoch = this.#epoch;
    const value = await ask();
    if (value !== undefined && epoch === this.#epoch && this.#db.isListening()) this.#keep(key, value);
    return value;
  }

  /** Drops the values that a change concerns, at once: for changes that this server makes itself. */
  forget(concerns: (value: Value) => boolean): void {
    this.#epoch += 1;
    for (const [key, value] of this.#known) if (concerns(value)) this.#known.delete(key);
  }

  forgetAll(): void {
    this.#epoch += 1;
    this.#known.clear();
  }

  /** Stops listening. */
  close(): void {
    for (const unlisten of this.#unlisten) unlisten();
    this.forgetAll();
  }

  #keep(key: string, value: Value): void {
    this.#known.set(key, value);
    if (this.#known.size <= this.#entriesMax) return;
    for (const oldest of this.#known.keys()) {
      this.#known.delete(oldest);
      return;
    }
  }
}
