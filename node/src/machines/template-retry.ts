/**
 * Retries a start once, with a guest that boots, when its restored guest died before it was configured.
 *
 * A template can be bad in a way that shows only then, for example after a change of the host's processor. It
 * is discarded only if the booted guest lives: a disk that kills every guest must not cost a template that
 * all machines of a size share.
 *
 * Always: at most one retry per attempt to run the machine. Nothing of it is on the disk: after a crash
 * of the agent the boot is repeated like any other.
 */
import type { Vm } from "../driver/driver.ts";

export class TemplateRetry {
  #diedAs: string | null = null;

  /** Whether the next boot must use neither a template nor a prepared VM. */
  get isDue(): boolean {
    return this.#diedAs !== null;
  }

  /** The VM crashed before it was configured. Returns whether the start is retried. */
  grant({ origin, record }: Pick<Vm, "origin" | "record">): boolean {
    if (this.isDue || (origin !== "template" && origin !== "prepared")) return false;
    this.#diedAs = record.bootId;
    return true;
  }

  /** Whether the end of this VM caused the retry. */
  isFor({ record }: Pick<Vm, "record">): boolean {
    return this.#diedAs === record.bootId;
  }

  /** The attempt has failed, or the machine runs. Returns whether it was a retry. */
  end(): boolean {
    const wasDue = this.isDue;
    this.#diedAs = null;
    return wasDue;
  }
}
