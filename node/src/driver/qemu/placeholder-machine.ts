/**
 * The configuration of a guest before it belongs to a machine: while a template is made, and when a prepared
 * VM mounts the disk of a future machine. A machine's own configuration replaces all of it.
 */
import { randomBytes } from "node:crypto";
import type { GuestConfiguration, GuestExecRequest } from "../../guest/guest.ts";

/**
 * The agent's own program, which exits at once with this argument: the only program before a root disk is
 * mounted.
 */
export const AGENT_COMMAND: GuestExecRequest = {
  argv: ["/init", "--end"],
  cwd: "/",
  env: {},
  user: null,
  hasStdin: false,
  terminal: null,
  isBackground: false,
};

export interface PlaceholderFacts {
  readonly rootDevice: string | null;
  readonly rootBytes: number;
  readonly user: string;
  /** The same in every machine, so the interface may stay up. */
  readonly address: GuestConfiguration["address"];
  /** The same in every machine with name servers; the others drop them. */
  readonly nameservers: readonly string[];
}

/** A different `digit` gives a different machine id. */
export function placeholderConfiguration(
  { rootDevice, rootBytes, user, address, nameservers }: PlaceholderFacts,
  { now, digit }: { readonly now: number; readonly digit: "0" | "1" },
): GuestConfiguration {
  return {
    hostname: "localhost",
    machineId: digit.repeat(32),
    now,
    entropy: randomBytes(32),
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
    workdir: "/",
    user,
    rootDevice,
    rootBytes,
    nameservers,
    address,
  };
}
