/**
 * Whether the host is about to go down, so that machines are suspended or shut down, and none starts.
 *
 * In memory only: the next agent resumes what runs, or what is suspended, as the journals say.
 */
import type { Clock } from "@flotilla/base/clock";
import { orAborted } from "@flotilla/base/abort";

/**
 * Before the deadline, in milliseconds: what was not begun to be suspended is shut down, which takes less.
 */
const SHUT_DOWN_MS = 15_000;

export class HostStop {
  readonly #clock: Clock;
  #stopping: AbortController | null = null;
  #tooLate = new AbortController();
  #isShort = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isStopping(): boolean {
    return this.#stopping !== null;
  }

  /** Aborted when no more suspend should begin because the host goes down too soon. */
  get tooLate(): AbortSignal {
    return this.#tooLate.signal;
  }

  /** The host goes down too soon for more than shutdowns. */
  get isTooLate(): boolean {
    return this.#isShort || this.tooLate.aborted;
  }

  /** A repeated call replaces the deadline. */
  begin(deadlineMs: number): void {
    this.#isShort = deadlineMs <= SHUT_DOWN_MS;
    this.#stopping ??= new AbortController();
    this.#tooLate = new AbortController();
    const tooLate = this.#tooLate;
    this.#clock.timer(Math.max(0, deadlineMs - SHUT_DOWN_MS), () =>
      tooLate.abort(new Error("its host goes down before its memory could be saved")),
    );
  }

  /** The host did not go down. */
  end(): void {
    this.#stopping?.abort();
    this.#stopping = null;
    this.#isShort = false;
    this.#tooLate = new AbortController();
  }

  /** Resolves when the host does not go down after all. Rejects with the signal's reason. */
  async ended(signal: AbortSignal): Promise<void> {
    const { signal: end } = this.#stopping ?? { signal: AbortSignal.abort() };
    if (end.aborted) return;
    const ended = new Promise<void>((resolve) => end.addEventListener("abort", () => resolve(), { once: true }));
    await orAborted(ended, signal);
  }
}
