/**
 * What a guest does before it is some machine's: it runs the way a machine's start and first command will take, so that
 * an emulated processor has translated that code already. Under hardware virtualization it costs a few milliseconds
 * and gains as much.
 */
import { randomBytes } from "node:crypto";
import type { GuestConfiguration, GuestExecRequest } from "../../guest/guest.ts";

/** The agent's own program, which ends at once when it is called like this: there is no other file before a root is mounted. */
export const WARM_UP_PROGRAM: GuestExecRequest = {
  argv: ["/init", "--end"],
  cwd: "/",
  env: {},
  user: null,
  hasStdin: false,
  terminal: null,
  isBackground: false,
};

/** What most first commands begin with. */
export const WARM_UP_SHELL: GuestExecRequest = { ...WARM_UP_PROGRAM, argv: ["sh", "-lc", "true"], cwd: null };

export interface WarmUpFacts {
  readonly rootDevice: string | null;
  readonly rootBytes: number;
  readonly user: string;
  /** The same in every machine, so the interface may stay up with it. */
  readonly address: GuestConfiguration["address"];
  /** The same in every machine that is told any; the others forget them. */
  readonly nameservers: readonly string[];
}

/** Of the machine that the guest plays until it is one. `digit`: another one makes it another machine. */
export function warmUpConfiguration(
  { rootDevice, rootBytes, user, address, nameservers }: WarmUpFacts,
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
