/**
 * The pause of a machine whose VMM could not write its disk, because the host's disk is full or failing.
 *
 * Always:
 * - One event says that the machine is paused, another one that it continues. The second comes SETTLED_MS
 *   after the guest was resumed, and a pause that begins before is the same one: a disk that fails at every
 *   write causes few events.
 * - `announced` is shown from the first event to the second. `reason` is exact.
 *
 * Nothing of it is on the disk: an agent that adopts the VM gets it from the VMM.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import type { NewEvent } from "@flotilla/contract/event-types";

const SETTLED_MS = 30_000;
const REASON = "its host's disk is full or failing; it continues by itself when the host has free disk space";

export interface DiskPauseOptions {
  readonly clock: Clock;
  readonly onEvent: (event: NewEvent) => void;
  /** `announced` has changed. */
  readonly onChange: () => void;
}

export class DiskPause {
  readonly #options: DiskPauseOptions;
  /** By the monotonic clock; null: no pause was announced. */
  #pausedAt: number | null = null;
  #isPaused = false;
  #settling: Timer | null = null;

  constructor(options: DiskPauseOptions) {
    this.#options = options;
  }

  /** Why the guest is paused at this moment; null: it is not. */
  get reason(): string | null {
    return this.#isPaused ? REASON : null;
  }

  /** Why the machine is paused, for users; null: it is not. */
  get announced(): string | null {
    return this.#pausedAt === null ? null : REASON;
  }

  /** The VMM has paused or resumed the guest. */
  note(isPaused: boolean): void {
    const { clock, onEvent, onChange } = this.#options;
    this.#isPaused = isPaused;
    this.#settling?.cancel();
    this.#settling = null;
    if (this.#pausedAt === null) {
      if (!isPaused) return;
      this.#pausedAt = clock.monotonic();
      onEvent({ type: "machine.paused", data: { reason: REASON } });
      onChange();
    } else if (!isPaused) {
      const seconds = Math.max(1, Math.round((clock.monotonic() - this.#pausedAt) / 1000));
      this.#settling = clock.timer(SETTLED_MS, () => {
        this.end();
        onEvent({ type: "machine.continued", data: { seconds } });
        onChange();
      });
    }
  }

  /** The VM is not watched any more, so there is no event. */
  end(): void {
    this.#settling?.cancel();
    this.#settling = null;
    this.#isPaused = false;
    this.#pausedAt = null;
  }
}
