/**
 * The pause of a machine whose VMM could not write its disk, because the host's disk is full or failing.
 *
 * Always:
 * - One event says that the machine is paused, another one that it continues. The second comes SETTLED_MS
 *   after the guest was resumed, and a pause that begins before is the same one: a disk that fails at every
 *   write causes few events.
 * - `reason` is exact: it ends when the guest is resumed.
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
  /** `reason` has changed. */
  readonly onChange: () => void;
}

export class DiskPause {
  readonly #options: DiskPauseOptions;
  /** By the monotonic clock; null: no event says that it is paused. */
  #pausedAt: number | null = null;
  #isPaused = false;
  #settling: Timer | null = null;

  constructor(options: DiskPauseOptions) {
    this.#options = options;
  }

  /** Why the guest is paused, for users; null: it is not. */
  get reason(): string | null {
    return this.#isPaused ? REASON : null;
  }

  /** The VMM has paused or resumed the guest. */
  note(isPaused: boolean): void {
    const { clock, onEvent, onChange } = this.#options;
    const hasChanged = this.#isPaused !== isPaused;
    this.#isPaused = isPaused;
    this.#settling?.cancel();
    this.#settling = null;
    if (this.#pausedAt === null) {
      if (isPaused) {
        this.#pausedAt = clock.monotonic();
        onEvent({ type: "machine.paused", data: { reason: REASON } });
      }
    } else if (!isPaused) {
      const seconds = Math.max(1, Math.round((clock.monotonic() - this.#pausedAt) / 1000));
      this.#settling = clock.timer(SETTLED_MS, () => {
        this.end();
        onEvent({ type: "machine.continued", data: { seconds } });
      });
    }
    if (hasChanged) onChange();
  }

  /** The VM is not watched any more, so there is no event. */
  end(): void {
    this.#settling?.cancel();
    this.#settling = null;
    this.#isPaused = false;
    this.#pausedAt = null;
  }
}
