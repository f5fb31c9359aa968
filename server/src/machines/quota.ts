/**
 * Ceilings of a tenant's plan, and the texts that refuse what goes over them.
 *
 * Pure. The texts of the count and the concurrency refusal are read by clients in daily use: their form is fixed. The
 * counting itself is part of the statements that insert and start machines (store.ts), so that it has no race.
 */
import { Refusal } from "@flotilla/contract/errors";

/** What a tenant may have: its plan's ceilings, with the tenant's own in place of them where it has any. */
export interface Ceilings {
  readonly planName: string;
  readonly maxMachines: number;
  readonly maxConcurrentMachines: number;
  /** Of all that are active, together. */
  readonly maxTotalCpus: number;
  readonly maxTotalMemoryMb: number;
  /** Of all, together. */
  readonly maxTotalDiskGb: number;
  /** Of one machine. */
  readonly maxCpus: number;
  readonly maxMemoryMb: number;
  readonly maxDiskGb: number;
}

/** What the machines of a tenant take: those that are active, but for the disk. */
export interface Totals {
  readonly machines: number;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskGb: number;
}

const allows = (ceilings: Ceilings): string => `your ${ceilings.planName} plan allows`;

export const countRefusal = (ceilings: Ceilings, plansUrl: string): Refusal =>
  new Refusal(
    "quota_exceeded",
    `machine count quota exceeded: ${allows(ceilings)} ${ceilings.maxMachines} machines; upgrade at ${plansUrl}`,
  );

export const diskRefusal = (diskGb: number, held: Totals, ceilings: Ceilings, plansUrl: string): Refusal =>
  new Refusal(
    "quota_exceeded",
    `disk limit reached: ${allows(ceilings)} ${ceilings.maxTotalDiskGb} GB of disk for all machines together, ${held.diskGb} are taken and ${diskGb} were asked for; ask for less, delete a machine, or upgrade at ${plansUrl}`,
  );

/** Why one more machine of this size cannot run beside those that are active; undefined: it can. */
export function activeRefusal(
  size: { readonly cpus: number; readonly memoryMb: number },
  held: Totals,
  ceilings: Ceilings,
  plansUrl: string,
): Refusal | undefined {
  if (held.machines >= ceilings.maxConcurrentMachines)
    return new Refusal(
      "quota_exceeded",
      `concurrency limit reached: ${allows(ceilings)} ${ceilings.maxConcurrentMachines} machines running at once; upgrade at ${plansUrl}`,
    );
  const sums: readonly [string, number, number, number, string][] = [
    ["memory", held.memoryMb, size.memoryMb, ceilings.maxTotalMemoryMb, "MB of memory"],
    ["vCPU", held.cpus, size.cpus, ceilings.maxTotalCpus, "vCPUs"],
  ];
  for (const [what, taken, asked, max, unit] of sums) {
    if (taken + asked <= max) continue;
    return new Refusal(
      "quota_exceeded",
      `${what} limit reached: ${allows(ceilings)} ${max} ${unit} for all running machines together, ${taken} are taken and this one needs ${asked}; stop a machine, or upgrade at ${plansUrl}`,
    );
  }
  return undefined;
}

/** Throws when one machine of this size is more than the plan allows for one. */
export function refuseOversize(
  size: { readonly cpus: number; readonly memoryMb: number; readonly diskGb: number },
  ceilings: Ceilings,
  plansUrl: string,
): void {
  const rules: readonly [number, number, string][] = [
    [size.cpus, ceilings.maxCpus, "vCPUs"],
    [size.memoryMb, ceilings.maxMemoryMb, "MB of memory"],
    [size.diskGb, ceilings.maxDiskGb, "GB of disk"],
  ];
  for (const [asked, max, unit] of rules) {
    if (asked <= max) continue;
    throw new Refusal(
      "quota_exceeded",
      `machine size quota exceeded: ${allows(ceilings)} ${max} ${unit} per machine, and ${asked} were asked for; upgrade at ${plansUrl}`,
    );
  }
}
