/**
 * The options for a plan's limits, which `plan create` and `plan update` share.
 */
import type { Command } from "commander";
import { count, countOrZero, diskGb, memoryMb, orNone } from "../arguments.ts";

export const withLimits = (command: Command): Command =>
  command
    .option("--max-machines <count>", "machines in any state", count)
    .option("--max-running <count>", "machines that run at once", count)
    .option("--max-cpus <count>", "virtual processors of one machine", count)
    .option("--max-memory <size>", "memory of one machine, such as 8g", memoryMb)
    .option("--max-disk <size>", "disk of one machine, such as 100g", diskGb)
    .option("--max-egress <GB>", "what its machines may send in a month, or none", orNone(countOrZero))
    .option("--max-packages <GB>", "what it may store in the registry, or none", orNone(countOrZero))
    .option("--budget-policy <policy>", "what happens when the budget is used up: none, notify, block or stop");

export interface Limits {
  readonly maxMachines?: number;
  readonly maxRunning?: number;
  readonly maxCpus?: number;
  readonly maxMemory?: number;
  readonly maxDisk?: number;
  readonly maxEgress?: number | "none";
  readonly maxPackages?: number | "none";
  readonly budgetPolicy?: string;
}

/** As the API names them. */
export const limitsOf = (limits: Limits) => ({
  maxMachines: limits.maxMachines,
  maxConcurrentMachines: limits.maxRunning,
  maxCpus: limits.maxCpus,
  maxMemoryMb: limits.maxMemory,
  maxDiskGb: limits.maxDisk,
  maxEgressGb: limits.maxEgress === "none" ? null : limits.maxEgress,
  maxPackageGb: limits.maxPackages === "none" ? null : limits.maxPackages,
  // The server knows the policies, and lists them when it refuses another word.
  budgetPolicy: limits.budgetPolicy as "none" | undefined,
});
