/**
 * A machine of this node as rooms above see it: what is observed, what commands use, and a door each to the
 * machine while it runs and while it rests.
 *
 * Always: what a door gives is so when it is given. A room above awaits, and then asks again.
 */
import type { LinkError, ObservedMachine } from "@flotilla/contract/link/link";
import type { BootRequest, Vm } from "../driver/driver.ts";
import type { Guest } from "../guest/guest.ts";
import type { VmNetwork } from "../network/vm-network.ts";
import type { Machine } from "./machine.ts";
import type { MachineDisk } from "./machine-disk.ts";
import type { MachineLog } from "./workload/machine-log.ts";

export type NodeMachine = SupervisedMachine | UnusableMachine;

interface AnyMachine {
  readonly machineId: string;
  readonly access: MachineAccess;
  /** What is reported of it. */
  observe(): ObservedMachine;
  /** What is observed when the machine has settled in this generation or a later one, or after `waitMs`. */
  settled(generation: number, waitMs: number, signal: AbortSignal): Promise<ObservedMachine>;
}

/** A machine whose files this node has and cannot use. */
export interface UnusableMachine extends AnyMachine {
  readonly known: null;
}

export interface SupervisedMachine extends AnyMachine {
  readonly known: KnownMachine;
  /** The machine while it runs and is to run; null: it does not, or its VMM is to be replaced. */
  running(): Promise<RunningMachine | null>;
  /**
   * The machine while it is to be stopped and nothing of it runs, so that its files do not change; null: they
   * may.
   */
  atRest(): Machine | null;
}

/** What may be read of a machine in every state. */
export interface KnownMachine extends Pick<Machine, "directory" | "journal" | "leaving"> {
  readonly disk: Pick<MachineDisk, "image" | "layerBytes" | "root">;
}

/** A machine that runs, and the request of its boot. */
export interface RunningMachine {
  readonly machine: Machine;
  readonly vm: Vm;
  readonly boot: BootRequest;
}

/** What commands, terminals and connections use of a machine. */
export interface MachineAccess {
  /** The guest, while the machine runs. */
  readonly guest: Guest | null;
  /** Connects to the guest's ports, while the machine runs. */
  readonly network: VmNetwork | null;
  /**
   * Why the guest accepts no command at this moment: its VMM has paused it, or its agent does not answer;
   * null: as far as is known it does.
   */
  readonly obstacle: LinkError | null;
  /** Calls back, once, when its agent does not answer any more. Returns what cancels that. */
  onSilent(end: (silence: LinkError) => void): () => void;
  /**
   * Whether the machine leaves or has left with its memory: its commands are continued from there, here or on
   * another node.
   */
  readonly isLeaving: boolean;
  /**
   * Resolves when another VMM has taken the guest over, to which its commands go then; null: none does now.
   */
  readonly switched: Promise<void> | null;
  /** The log of its workload, also of a machine that is stopped. */
  readonly log: MachineLog;
}
