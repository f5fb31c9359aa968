/**
 * What a signal means to a program that is being stopped: the first asks it to stop, a later one insists.
 * Pure.
 *
 * Always: signals within SAME_MS of the first are the same request. One Ctrl-C arrives two or three times:
 * the terminal sends it to the whole process group, and npm and timeout(1) each forward it.
 */
export const SAME_MS = 1_000;

export type StopRequest = "ask" | "same" | "insist";

export class StopRequests {
  #askedAt: number | null = null;

  /** `now`: monotonic milliseconds. */
  take(now: number): StopRequest {
    if (this.#askedAt === null) {
      this.#askedAt = now;
      return "ask";
    }
    return now - this.#askedAt < SAME_MS ? "same" : "insist";
  }
}
