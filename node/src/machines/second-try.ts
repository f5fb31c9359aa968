/**
 * Gives a start one more try, with a guest that boots, when its restored guest died before it was set up.
 *
 * A template can be bad in a way that shows only then, such as after a change of the host's processor. It is given up when
 * the guest that booted lived: a disk that kills every guest is no reason to give up what all machines of a size share.
 *
 * Always: at most one second try for an attempt to run the machine. Nothing of it is on the disk: after a crash of the
 * agent the boot is begun again like any other.
 */
import type { Vm } from "../driver/driver.ts";

export class SecondTry {
  #diedAs: string | null = null;

  /** The next boot is to use no template and no prepared VM. */
  get isDue(): boolean {
    return this.#diedAs !== null;
  }

  /** The VM crashed before it was set up. Returns whether the machine is started again for that. */
  grant({ origin, record }: Pick<Vm, "origin" | "record">): boolean {
    if (this.isDue || (origin !== "template" && origin !== "prepared")) return false;
    this.#diedAs = record.bootId;
    return true;
  }

  /** Whether it was this VM's end that the second try is for. */
  isFor({ record }: Pick<Vm, "record">): boolean {
    return this.#diedAs === record.bootId;
  }

  /** The attempt has failed, or the machine runs. Returns whether that was by a second try. */
  end(): boolean {
    const wasDue = this.isDue;
    this.#diedAs = null;
    return wasDue;
  }
}
