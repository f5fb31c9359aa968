/**
 * What commands, terminals and connections use of a machine, as it is at the moment of each look.
 */
import type { LinkError } from "@flotilla/contract/link/link";
import type { Guest } from "../guest/guest.ts";
import type { VmNetwork } from "../network/vm-network.ts";
import type { Machine } from "./machine.ts";
import type { MachineLog } from "./workload/machine-log.ts";
import type { MachineAccess } from "./node-machine.ts";

export class Access implements MachineAccess {
  readonly #machine: Machine;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  get guest(): Guest | null {
    const { held, journal } = this.#machine;
    return held.state === "configured" && journal.desired === "running" ? (held.vm?.guest ?? null) : null;
  }

  get network(): VmNetwork | null {
    return this.guest === null && this.switched === null ? null : (this.#machine.held.vm?.network ?? null);
  }

  get obstacle(): LinkError | null {
    const { held, guestWatch } = this.#machine;
    if (held.diskPause.reason !== null) return { code: "paused", message: held.diskPause.reason };
    return guestWatch.reason === null ? null : { code: "guest_unreachable", message: guestWatch.reason };
  }

  onSilent(end: (silence: LinkError) => void): () => void {
    return this.#machine.guestWatch.onSilent((message) => end({ code: "guest_unreachable", message }));
  }

  get isLeaving(): boolean {
    const { desired, keepsCommands = false, memory = null } = this.#machine.journal;
    if (this.switched !== null) return true;
    return (desired !== "running" && keepsCommands) || memory?.keepsCommands === true;
  }

  get switched(): Promise<void> | null {
    return this.#machine.replacing?.switched ?? null;
  }

  get log(): MachineLog {
    return this.#machine.machineLog;
  }
}

/** Nothing but the log, for a machine that this node cannot use. */
export const noAccess = (log: MachineLog): MachineAccess => ({
  ...{ guest: null, network: null, obstacle: null, isLeaving: false, switched: null, log },
  onSilent: () => () => undefined,
});
