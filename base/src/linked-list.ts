/**
 * What is present now, in the order in which it came. For what comes and goes with each request; elsewhere a
 * Set does. Pure.
 *
 * Always: what has left refers to nothing that came after it. With a Set, V8 copies its table whenever
 * deleted members have filled it, and the old table refers to the new one. Once a table is in the old
 * generation, all later ones stay in memory until a full collection, with what was in them
 * (docs/decisions/0018-what-one-caller-may-hold.md).
 */

/** A place in a list. */
export interface Link<T> {
  readonly value: T;
  /** false: it was removed. */
  readonly isIn: boolean;
  /** Returns false when it was removed before. */
  remove(): boolean;
}

export class LinkedList<T> implements Iterable<T> {
  readonly #ends: Ends<T> = { first: null, last: null, size: 0 };

  get size(): number {
    return this.#ends.size;
  }

  get first(): Link<T> | null {
    return this.#ends.first;
  }

  append(value: T): Link<T> {
    return new Place(value, this.#ends);
  }

  clear(): void {
    for (const link of this.links()) link.remove();
  }

  /** Copies the links that are in now; they may be removed meanwhile. */
  links(): readonly Link<T>[] {
    const all: Link<T>[] = [];
    for (let place = this.#ends.first; place !== null; place = place.next) all.push(place);
    return all;
  }

  /** What is in when it begins, also what is removed before its turn. */
  [Symbol.iterator](): Iterator<T> {
    return this.links()
      .map(({ value }) => value)
      .values();
  }
}

interface Ends<T> {
  first: Place<T> | null;
  last: Place<T> | null;
  size: number;
}

class Place<T> implements Link<T> {
  readonly value: T;
  /** null: it was removed. */
  #ends: Ends<T> | null;
  previous: Place<T> | null;
  next: Place<T> | null = null;

  /** Appends it. */
  constructor(value: T, ends: Ends<T>) {
    this.value = value;
    this.#ends = ends;
    this.previous = ends.last;
    if (ends.last === null) ends.first = this;
    else ends.last.next = this;
    ends.last = this;
    ends.size += 1;
  }

  get isIn(): boolean {
    return this.#ends !== null;
  }

  remove(): boolean {
    const ends = this.#ends;
    if (ends === null) return false;
    const { previous, next } = this;
    if (previous === null) ends.first = next;
    else previous.next = next;
    if (next === null) ends.last = previous;
    else next.previous = previous;
    ends.size -= 1;
    this.#ends = null;
    this.previous = null;
    this.next = null;
    return true;
  }
}
