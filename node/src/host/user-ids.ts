/**
 * The unprivileged user of each machine: one number per machine of this node, released when the machine is
 * removed.
 *
 * Always: no two machines of one node directory have the same user. The hash of its path gives each directory
 * of a host a range, so that two Flotillas on one host do not share users either. The ranges collide with a
 * probability of 1 in 4,096, which costs only the isolation between the VMMs of two machines with the same
 * user.
 *
 * The journals store the numbers; this object only remembers which are in use.
 */
import { createHash } from "node:crypto";

/** Above the users of people and services, and above most ranges of user namespaces. */
export const USER_ID_FIRST = 700_000;
const RANGES = 4096;
export const USERS_PER_RANGE = 4096;

/** First id of the range of a node's directory, which is an absolute path. */
export function firstUserId(directory: string): number {
  const range = createHash("sha256").update(directory).digest().readUInt32LE(0) % RANGES;
  return USER_ID_FIRST + range * USERS_PER_RANGE;
}

export class UserIds {
  readonly #first: number;
  readonly #used = new Set<number>();

  /** `directory`: the node's; its absolute path selects the range. */
  constructor(directory: string) {
    this.#first = firstUserId(directory);
  }

  /** Marks a number from a journal as used. */
  reserve(uid: number): void {
    this.#used.add(uid);
  }

  /**
   * Marks a number from a machine's file as used if it is in this node's range and free. Returns whether it
   * was.
   */
  takeBack(uid: number): boolean {
    const isOwn = uid >= this.#first && uid < this.#first + USERS_PER_RANGE;
    if (!isOwn || this.#used.has(uid)) return false;
    this.#used.add(uid);
    return true;
  }

  /** Returns a free number. Throws when all are in use. */
  take(): number {
    for (let uid = this.#first; uid < this.#first + USERS_PER_RANGE; uid += 1) {
      if (this.#used.has(uid)) continue;
      this.#used.add(uid);
      return uid;
    }
    throw new Error(
      `this node holds ${USERS_PER_RANGE} machines, which is its limit; remove some, or use another node`,
    );
  }

  free(uid: number): void {
    this.#used.delete(uid);
  }
}
