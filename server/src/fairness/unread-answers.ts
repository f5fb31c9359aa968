/**
 * Whole answers that their callers have not read yet. Each is in memory until the caller reads it or STALL_MS
 * of stalled.ts is over, and its request has ended, so nothing else counts it. Streams are not among them:
 * little is held of each, and they are open requests.
 *
 * Always: no holder has more than `perHolder` bytes of them besides the last one, and all holders no more
 * than `all`. Above that the oldest one loses its connection, of the holder that has most: it is the one
 * whose caller has had most time to read it.
 */
import type { ServerResponse } from "node:http";

/** As much as the output of commands that is kept for a tenant, and for all (machines/exec/output.ts). */
const TENANT_BYTES_MAX = 256 * 1024 * 1024;
const ALL_BYTES_MAX = 1024 * 1024 * 1024;

interface Held {
  bytes: number;
  /** Oldest first. */
  readonly answers: Map<Unread, number>;
}

type Unread = Pick<ServerResponse, "destroy" | "once" | "writableLength">;

export class UnreadAnswers {
  readonly #perHolder: number;
  readonly #all: number;
  readonly #holders = new Map<string, Held>();
  #total = 0;

  constructor({ perHolder = TENANT_BYTES_MAX, all = ALL_BYTES_MAX } = {}) {
    this.#perHolder = perHolder;
    this.#all = all;
  }

  /** Call it when the whole answer was written. What the network has taken at once is not counted. */
  hold(holder: string, answer: Unread): void {
    const bytes = answer.writableLength;
    if (bytes === 0) return;
    const held = this.#holders.get(holder) ?? { bytes: 0, answers: new Map<Unread, number>() };
    this.#holders.set(holder, held);
    held.answers.set(answer, bytes);
    held.bytes += bytes;
    this.#total += bytes;
    answer.once("close", () => this.#release(holder, answer));
    let isCut = true;
    while (isCut && held.bytes > this.#perHolder) isCut = this.#cutOldest(holder, answer);
    while (isCut && this.#total > this.#all) isCut = this.#cutOldest(this.#largestHolder(), answer);
  }

  get total(): number {
    return this.#total;
  }

  /** Whether there was one besides the last. */
  #cutOldest(holder: string, last: Unread): boolean {
    const [oldest] = this.#holders.get(holder)?.answers.keys() ?? [];
    if (oldest === undefined || oldest === last) return false;
    this.#release(holder, oldest);
    oldest.destroy();
    return true;
  }

  #release(holder: string, answer: Unread): void {
    const held = this.#holders.get(holder);
    const bytes = held?.answers.get(answer);
    if (held === undefined || bytes === undefined) return;
    held.answers.delete(answer);
    held.bytes -= bytes;
    this.#total -= bytes;
    if (held.answers.size === 0) this.#holders.delete(holder);
  }

  #largestHolder(): string {
    let largest = "";
    let most = 0;
    for (const [holder, { bytes }] of this.#holders) {
      if (bytes > most) [largest, most] = [holder, bytes];
    }
    return largest;
  }
}
