/**
 * The unprivileged user of each machine: one number per machine of this node, free again when the machine is removed.
 *
 * Always: no two machines of one node directory have the same user. Directories on one host get different ranges by
 * the hash of their path, so that two Flotillas side by side do not share users either (one chance in 4,096 that they
 * do, which costs isolation between those two machines' VMMs and nothing else).
 *
 * The journals hold the numbers; this object only remembers which are taken.
 */
import { createHash } from "node:crypto";

/** Above the users of people and services, above most ranges of user namespaces. */
export const USER_ID_FIRST = 700_000;
const RANGES = 4096;
export const USERS_PER_RANGE = 4096;

export class UserIds {
  readonly #first: number;
  readonly #taken = new Set<number>();

  /** `directory`: the node's own; its absolute path chooses the range. */
  constructor(directory: string) {
    const range = createHash("sha256").update(directory).digest().readUInt32LE(0) % RANGES;
    this.#first = USER_ID_FIRST + range * USERS_PER_RANGE;
  }

  /** Notes a number that a journal names. */
  reserve(uid: number): void {
    this.#taken.add(uid);
  }

  /** Takes a number that a machine's file has, if it is one of this node's and no other machine's. */
  takeBack(uid: number): boolean {
    const isOwn = uid >= this.#first && uid < this.#first + USERS_PER_RANGE;
    if (!isOwn || this.#taken.has(uid)) return false;
    this.#taken.add(uid);
    return true;
  }

  /** Throws when the node has as many machines as it can tell apart. */
  take(): number {
    for (let uid = this.#first; uid < this.#first + USERS_PER_RANGE; uid += 1) {
      if (this.#taken.has(uid)) continue;
      this.#taken.add(uid);
      return uid;
    }
    throw new Error(
      `this node holds ${USERS_PER_RANGE} machines, which is its limit; remove some, or use another node`,
    );
  }

  free(uid: number): void {
    this.#taken.delete(uid);
  }
}
