/**
 * How many machines a key has: those that it made, and the instances of apps that it changed last, of which
 * the asked ones count before they are made. Pure.
 */
import type { AppInfo, MachineInfo } from "@flotilla/sdk";

/** Machines are listed without the instances of apps. */
export interface Holding {
  readonly machines: readonly Pick<MachineInfo, "createdBy">[];
  readonly apps: readonly (Pick<AppInfo, "name" | "replicas" | "createdBy"> & {
    readonly instances: readonly unknown[];
  })[];
}

/** `app`: the name of one that is not counted. */
export function heldBy(key: string, { machines, apps }: Holding, app?: string): number {
  const own = apps.filter(({ createdBy, name }) => createdBy === key && name !== app);
  const instances = own.map((each) => Math.max(each.replicas, each.instances.length));
  return machines.filter(({ createdBy }) => createdBy === key).length + instances.reduce((sum, each) => sum + each, 0);
}
