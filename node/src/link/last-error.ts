/**
 * The last error that the agent has logged, for reports to the server. In memory: it is gone when the agent
 * ends.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Heartbeat } from "@flotilla/contract/link/link";

export class LastError {
  readonly #clock: Pick<Clock, "now">;
  #last: Heartbeat["lastError"] = null;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  get last(): Heartbeat["lastError"] {
    return this.#last;
  }

  note(message: string): void {
    this.#last = { at: this.#clock.now(), message };
  }
}
