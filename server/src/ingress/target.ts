/**
 * Where a request may be forwarded to: a set of ports of machines, each of which can answer it. Pure.
 */
import type { HostKind } from "../hosts/kinds.ts";
import type { MachineName } from "../machines/record.ts";
import type { Access } from "./access-store.ts";

export interface TargetPort {
  readonly machine: MachineName;
  /** null: the first one that is published. */
  readonly port: number | null;
}

/** Not empty. */
export type TargetSet = readonly [TargetPort, ...TargetPort[]];

const TARGETS: Readonly<Record<HostKind, (access: Access) => TargetSet>> = {
  machine: (machine) => [{ machine, port: null }],
};

/** What the host name of the subject leads to. */
export const targetsOf = (access: Access): TargetSet => TARGETS[access.kind](access);

/**
 * The target whose machine has the fewest commands and connections open; of equals the first, so that
 * requests one after the other meet its idle connections.
 */
export function chooseTarget(targets: TargetSet, openIn: (machineId: string) => number): TargetPort {
  let [chosen] = targets;
  if (targets.length === 1) return chosen;
  let fewest = Infinity;
  for (const target of targets) {
    const open = openIn(target.machine.id);
    if (open < fewest) [chosen, fewest] = [target, open];
  }
  return chosen;
}
