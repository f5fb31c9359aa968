/**
 * What a guest is told and runs before it is any machine's: while a template is made of it, and when it mounts a disk that
 * a machine will take over together with it. A machine's own configuration replaces all of it.
 */
import { randomBytes } from "node:crypto";
import type { GuestConfiguration, GuestExecRequest } from "../../guest/guest.ts";

/** The agent's own program, which ends at once when it is called like this: there is no other file before a root is mounted. */
export const AGENT_COMMAND: GuestExecRequest = {
  argv: ["/init", "--end"],
  cwd: "/",
  env: {},
  user: null,
  hasStdin: false,
  terminal: null,
  isBackground: false,
};

export interface UnnamedFacts {
  readonly rootDevice: string | null;
  readonly rootBytes: number;
  readonly user: string;
  /** The same in every machine, so the interface may stay up with it. */
  readonly address: GuestConfiguration["address"];
  /** The same in every machine that is told any; the others forget them. */
  readonly nameservers: readonly string[];
}

/** `digit`: another one makes it another machine. */
export function unnamedConfiguration(
  { rootDevice, rootBytes, user, address, nameservers }: UnnamedFacts,
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
