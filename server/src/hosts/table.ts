/**
 * Host names in memory: from a name to what has it.
 *
 * Always:
 * - A name belongs to its subject until the subject is deleted or given another name. So an entry is right
 *   while its subject has the name, needs no notification, and costs one query in the life of a subject. A
 *   caller that finds the subject gone, or with another name, says so (`forget`), and looks the name up
 *   again: another may have it by then.
 * - "Nothing has the name" is the result of a query that began after the call. A query that was under way may
 *   have begun before the name was given.
 * - Names that nothing has are not kept, so that guessed names cannot fill the memory. Above ENTRIES_MAX the
 *   oldest entry is dropped.
 */
import type { Queryable } from "../db/database.ts";
import { type HostSubject, subjectOfId } from "./kinds.ts";
import { findHost } from "./store.ts";

/** A few megabytes. */
const ENTRIES_MAX = 10_000;

export class HostTable {
  readonly #db: Queryable;
  readonly #known = new Map<string, HostSubject>();
  /** Queries under way, which calls for the same name share. */
  readonly #queries = new Map<string, Promise<HostSubject | undefined>>();

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** From memory; undefined: `find` would ask the database. */
  known(name: string): HostSubject | undefined {
    return subjectOfId(name) ?? this.#known.get(name);
  }

  /** undefined: nothing has the name. Throws DatabaseUnavailable. */
  async find(name: string): Promise<HostSubject | undefined> {
    const known = this.known(name);
    if (known !== undefined) return known;
    const before = this.#queries.get(name);
    const found = before === undefined ? undefined : await before;
    return found ?? this.#queries.get(name) ?? this.#query(name);
  }

  /** The subject that was found for the name is gone, or has another name. */
  forget(name: string, { id }: HostSubject): void {
    if (this.#known.get(name)?.id === id) this.#known.delete(name);
  }

  #query(name: string): Promise<HostSubject | undefined> {
    const query = findHost(this.#db, name)
      .then((found) => {
        if (found !== undefined) this.#keep(name, found);
        return found;
      })
      .finally(() => this.#queries.delete(name));
    this.#queries.set(name, query);
    return query;
  }

  #keep(name: string, found: HostSubject): void {
    this.#known.set(name, found);
    if (this.#known.size <= ENTRIES_MAX) return;
    for (const oldest of this.#known.keys()) {
      this.#known.delete(oldest);
      return;
    }
  }
}
