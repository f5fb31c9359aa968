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
  /** Of one machine. */
  readonly maxCpus: number;
  readonly maxMemoryMb: number;
  readonly maxDiskGb: number;
}

const allows = (ceilings: Ceilings): string => `your ${ceilings.planName} plan allows`;

export const countRefusal = (ceilings: Ceilings, plansUrl: string): Refusal =>
  new Refusal(
    "quota_exceeded",
    `machine count quota exceeded: ${allows(ceilings)} ${ceilings.maxMachines} machines; upgrade at ${plansUrl}`,
  );

export const concurrencyRefusal = (ceilings: Ceilings, plansUrl: string): Refusal =>
  new Refusal(
    "quota_exceeded",
    `concurrency limit reached: ${allows(ceilings)} ${ceilings.maxConcurrentMachines} machines running at once; upgrade at ${plansUrl}`,
  );

/** Throws when one machine of this size is more than the plan allows. */
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
