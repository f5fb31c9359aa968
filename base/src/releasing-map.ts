/**
 * A Map from which values go as fast as they come. Pure.
 *
 * Always: nothing keeps a value that was deleted. A Map may, until a full collection, for the reason in
 * linked-list.ts; so the Map in here has an object for each value, which is emptied.
 */

export class ReleasingMap<Key extends number | string, Value extends object> {
  readonly #slots = new Map<Key, { value: Value | undefined }>();

  get size(): number {
    return this.#slots.size;
  }

  has(key: Key): boolean {
    return this.#slots.has(key);
  }

  get(key: Key): Value | undefined {
    return this.#slots.get(key)?.value;
  }

  /** Replaces the value of a key that has one, in its place. */
  set(key: Key, value: Value): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) this.#slots.set(key, { value });
    else slot.value = value;
  }

  delete(key: Key): boolean {
    const slot = this.#slots.get(key);
    if (slot !== undefined) slot.value = undefined;
    return this.#slots.delete(key);
  }

  clear(): void {
    for (const key of [...this.#slots.keys()]) this.delete(key);
  }

  /** At this moment, in the order in which the keys came. */
  entries(): readonly (readonly [Key, Value])[] {
    return [...this.#slots].flatMap(([key, { value }]) => (value === undefined ? [] : [[key, value] as const]));
  }

  values(): readonly Value[] {
    return this.entries().map(([, value]) => value);
  }
}
