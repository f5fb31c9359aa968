/**
 * What a check works on: a machine's guest and network, and how long. Types only.
 */
import type { MachineHealthCheck } from "@flotilla/contract/link/link";
import type { Guest } from "../guest/guest.ts";
import type { VmNetwork } from "../network/vm-network.ts";

/** What is checked. */
export interface CheckTarget {
  readonly guest: Pick<Guest, "exec">;
  /** null: the guest has no network interface. */
  readonly network: Pick<VmNetwork, "dial"> | null;
}

/** One check, as its kind sees it. */
export interface CheckRun extends CheckTarget {
  readonly check: MachineHealthCheck;
  /** Aborted at the timeout, or when the result is not needed any more. */
  readonly signal: AbortSignal;
  /** Says what has not happened yet, as in `port 80 did not take a connection`. */
  readonly awaits: (what: string) => void;
}
