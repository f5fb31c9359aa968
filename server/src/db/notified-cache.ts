/**
 * A cache that notifications keep current, for values that most requests read and that rarely change.
 *
 * Always:
 * - A notified change drops the values that it affects. Nothing is kept while notifications do not arrive,
 *   and everything is dropped when some may have been missed.
 * - A value that was read while a change arrived is used once and not kept (the epoch).
 * - A key without a value is not kept, so guessed keys cannot fill the memory. Above `entriesMax` the oldest
 *   entry is dropped.
 */
import type { Channel, Database } from "./database.ts";

/**
 * The channel of changes, and which values a change affects; without `concerns` each change drops everything.
 */
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

  /** What `ask` returns, kept from then on if that is safe. */
  async read<Asked extends Value | undefined>(key: string, ask: () => Promise<Asked>): Promise<Asked> {
    const epoch = this.#epoch;
    const value = await ask();
    if (value !== undefined && epoch === this.#epoch && this.#db.isListening()) this.#keep(key, value);
    return value;
  }

  /** Drops the values that a change of this server affects, at once. */
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
