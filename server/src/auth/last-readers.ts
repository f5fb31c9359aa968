/**
 * Remembers keys that read endpoints such as metrics, so that they can read them while the database is
 * unavailable.
 *
 * Always: at most READERS_MAX, the latest, in memory; used only while the database does not answer.
 * A key that another server revokes meanwhile can read them until the database is back.
 */
import { DatabaseUnavailable } from "../db/database.ts";
import type { KnownKey } from "./key-cache.ts";
import { hashedName } from "./keys.ts";

const READERS_MAX = 100;

export class LastReaders {
  readonly #readers = new Map<string, KnownKey>();

  #note(bearer: string, key: KnownKey): void {
    const name = hashedName(bearer);
    this.#readers.delete(name);
    this.#readers.set(name, key);
    if (this.#readers.size <= READERS_MAX) return;
    const oldest = this.#readers.keys().next();
    if (!oldest.done) this.#readers.delete(oldest.value);
  }

  /** The key; while the database does not answer, one that has read before. Rejects as `found` does. */
  async orLast(bearer: string, found: KnownKey | Promise<KnownKey>, now: () => number): Promise<KnownKey> {
    try {
      const key = await found;
      this.#note(bearer, key);
      return key;
    } catch (error) {
      const known = error instanceof DatabaseUnavailable ? this.#find(bearer, now()) : undefined;
      if (known === undefined) throw error;
      return known;
    }
  }

  /** undefined: it has not read before, or has expired. `now` in epoch milliseconds. */
  #find(bearer: string, now: number): KnownKey | undefined {
    const key = this.#readers.get(hashedName(bearer));
    return key === undefined || (key.expiresAt !== null && key.expiresAt <= now) ? undefined : key;
  }
}
