/**
 * Remembers images that could not be built, so that the same bytes are not built again and again.
 *
 * Always: a digest that failed is refused for some time, at no cost and with the reason of its failure. Each
 * further failure doubles that time, from 30 seconds to an hour. The content of a digest never changes, so
 * only a newer version of the node can succeed. Kept in memory only; a restart clears it.
 */
import type { Clock } from "@flotilla/base/clock";

interface Failure {
  readonly message: string;
  readonly count: number;
  /** Monotonic milliseconds. */
  readonly until: number;
}

const DELAY_MS_MIN = 30_000;
const DELAY_MS_MAX = 60 * 60_000;
const FAILURES_MAX = 1_000;

export class FailedBuilds {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #failures = new Map<string, Failure>();

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** Throws an Error with a user-facing message while the digest may not be tried again. */
  check(digest: string): void {
    const failure = this.#failures.get(digest);
    const leftMs = (failure?.until ?? 0) - this.#clock.monotonic();
    if (failure === undefined || leftMs <= 0) return;
    const seconds = Math.ceil(leftMs / 1000);
    throw new Error(`${failure.message} (the next attempt is possible in ${seconds} s)`);
  }

  record(digest: string, message: string): void {
    const count = (this.#failures.get(digest)?.count ?? 0) + 1;
    const delayMs = Math.min(DELAY_MS_MIN * 2 ** (count - 1), DELAY_MS_MAX);
    this.#failures.delete(digest);
    this.#failures.set(digest, { message, count, until: this.#clock.monotonic() + delayMs });
    const [oldest] = this.#failures.keys();
    if (this.#failures.size > FAILURES_MAX && oldest !== undefined) this.#failures.delete(oldest);
  }
}
