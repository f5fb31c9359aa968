/**
 * What the rest of the agent may do with a machine's network, whatever runs the machine. Types only.
 */
import type { Duplex } from "node:stream";
import type { GuestConfiguration } from "../guest/guest.ts";

/** Counts what leaves a machine, as `VmNetwork.sentBytes` says. The caller closes it. */
export interface SentCounter {
  /** In bytes; after `close` what it was then. */
  bytes(): number;
  close(): void;
}

/** The network of a machine's VM. */
export interface VmNetwork extends Pick<GuestConfiguration, "address" | "nameservers"> {
  /**
   * Connects to a TCP port of the guest, regardless of the machine's policy. Rejects with the system's error,
   * such as `ECONNREFUSED`, or when nothing answers within seconds. `signal` cancels connecting.
   */
  dial(port: number, signal?: AbortSignal): Promise<Duplex>;
  /**
   * How many bytes have left the machine since its VMM was spawned; of a VM that has ended, until its end.
   * Its network counts, so VMMs that replace each other and agents that come and go change nothing.
   */
  sentBytes(): number;
  /** Continues the count when this network is released, to the end of the VMM. */
  countOn(): SentCounter;
  /** The published ports on the host's loopback. */
  readonly hostPorts: readonly { readonly port: number; readonly hostPort: number }[];
}
