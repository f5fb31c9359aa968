/**
 * What others may do with a machine's network, whatever runs the machine. Types only.
 */
import type { Duplex } from "node:stream";
import type { GuestConfiguration } from "../guest/guest.ts";

/** The network of a VM that is a machine's. */
export interface VmNetwork extends Pick<GuestConfiguration, "address" | "nameservers"> {
  /**
   * A connection to a TCP port of the guest, whatever the machine itself may reach. Rejects with the system's error,
   * such as `ECONNREFUSED`, or when nothing answers within seconds; `signal` gives up connecting.
   */
  dial(port: number, signal?: AbortSignal): Promise<Duplex>;
  /** Where on the host's loopback its published ports are. */
  readonly hostPorts: readonly { readonly port: number; readonly hostPort: number }[];
}
