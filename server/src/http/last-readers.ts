/**
 * Who may read what must be readable while the database is away, such as metrics: the keys that did so while it was there.
 *
 * Always: in memory, at most READERS_MAX, the latest; only for endpoints that say `worksWithoutDatabase`, and only while
 * the database does not answer. A key that was revoked elsewhere in such a time can read them until the database is back.
 */
import type { KnownKey } from "../auth/key-cache.ts";
import { hashedName } from "../auth/keys.ts";

const READERS_MAX = 100;

export class LastReaders {
  readonly #readers = new Map<string, KnownKey>();

  note(bearer: string, key: KnownKey): void {
    const name = hashedName(bearer);
    this.#readers.delete(name);
    this.#readers.set(name, key);
    if (this.#readers.size <= READERS_MAX) return;
    const oldest = this.#readers.keys().next();
    if (!oldest.done) this.#readers.delete(oldest.value);
  }

  /** undefined: it has not read before, or has expired. `now` in epoch milliseconds. */
  find(bearer: string, now: number): KnownKey | undefined {
    const key = this.#readers.get(hashedName(bearer));
    return key === undefined || (key.expiresAt !== null && key.expiresAt <= now) ? undefined : key;
  }
}
