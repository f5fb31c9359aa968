/**
 * Turns of the requests for one upload: the next one begins when the one before has ended in the backend,
 * also when its caller has gone. So an offset that is answered is that of the backend.
 *
 * In memory of one server: requests of one upload through two servers at the same time are refused by the
 * backend.
 */
import type { Clock } from "@flotilla/base/clock";
import { OciError } from "./oci-error.ts";

/** Longer than a backend takes to end a part whose caller has gone. */
const WAIT_MS = 30_000;

export class UploadTurns {
  readonly #clock: Clock;
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs the work in its turn. Throws an OciError when the one before takes too long. */
  async take<T>(id: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(id);
    if (before !== undefined) await this.#awaitTurn(before);
    // Another request may have been waiting as well.
    if (this.#last.get(id) !== undefined && this.#last.get(id) !== before) return await this.take(id, work);
    const working = work();
    const done = working.then(
      () => undefined,
      () => undefined,
    );
    this.#last.set(id, done);
    void done.then(() => {
      if (this.#last.get(id) === done) this.#last.delete(id);
    });
    return await working;
  }

  async #awaitTurn(before: Promise<unknown>): Promise<void> {
    const waited = new AbortController();
    const late = this.#clock.sleep(WAIT_MS, waited.signal).then(() => "late");
    const first = await Promise.race([before, late]);
    waited.abort();
    if (first === "late")
      throw new OciError(
        429,
        "TOOMANYREQUESTS",
        "another request of this upload still runs; ask for its offset later",
        {
          "retry-after": "5",
        },
      );
  }
}
