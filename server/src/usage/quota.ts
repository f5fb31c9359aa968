/**
 * Ceilings of a tenant's plan, and the texts of refusals over them.
 *
 * Pure. Existing clients parse the texts of the count and the concurrency refusal: their form is fixed. The
 * statements that insert and start machines (machines/store.ts) do the counting, so that there is no race.
 */
import { Refusal } from "@flotilla/contract/errors";
import { renderGb } from "@flotilla/contract/traffic";
import type { PlanLimit } from "@flotilla/contract/refusal-details";
import type { BudgetPolicy } from "@flotilla/contract/plans";

/** A tenant's ceilings: its plan's, overridden by the tenant's own. */
export interface Ceilings {
  readonly planName: string;
  /** The ceilings that are the tenant's own. */
  readonly own: readonly PlanLimit[];
  readonly maxMachines: number;
  readonly maxConcurrentMachines: number;
  /** Sum over all active machines. */
  readonly maxTotalCpus: number;
  readonly maxTotalMemoryMb: number;
  /** Sum over all machines. */
  readonly maxTotalDiskGb: number;
  /** Ceilings of one machine. */
  readonly maxCpus: number;
  readonly maxMemoryMb: number;
  readonly maxDiskGb: number;
  /** What all machines may send in a calendar month in UTC; null: no ceiling. */
  readonly maxEgressGb: number | null;
  /** What a tenant may store in the registry; null: no ceiling. */
  readonly maxPackageGb: number | null;
  readonly budgetPolicy: BudgetPolicy;
  /** Budget of a calendar month in UTC; null: none. */
  readonly monthlyBudgetMicros: number | null;
}

/** The resources of a tenant's active machines, and the disk of all machines, with what is kept of memory. */
export interface Totals {
  readonly machines: number;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskGb: number;
}

const allows = (ceilings: Ceilings): string => `your ${ceilings.planName} plan allows`;

/** What the caller can do. `plansUrl` null: there is no page of plans. */
const advice = (plansUrl: string | null): string =>
  plansUrl === null ? "ask the operator for a larger plan" : `upgrade at ${plansUrl}`;

export const countRefusal = (ceilings: Ceilings, plansUrl: string | null): Refusal =>
  new Refusal(
    "quota_exceeded",
    `machine count quota exceeded: ${allows(ceilings)} ${ceilings.maxMachines} machines; ${advice(plansUrl)}`,
    { limit: { of: "maxMachines", bound: "<=", value: ceilings.maxMachines } },
  );

export const diskRefusal = (diskGb: number, held: Totals, ceilings: Ceilings, plansUrl: string | null): Refusal =>
  new Refusal(
    "quota_exceeded",
    `disk limit reached: ${allows(ceilings)} ${ceilings.maxTotalDiskGb} GB of disk for all machines together, ${held.diskGb} are in use and ${diskGb} were requested; request less, delete a machine, or ${advice(plansUrl)}`,
    { limit: { of: "maxTotalDiskGb", bound: "<=", value: ceilings.maxTotalDiskGb } },
  );

/** The refusal of one more active machine of this size; undefined: it fits. */
export function activeRefusal(
  size: { readonly cpus: number; readonly memoryMb: number },
  held: Totals,
  ceilings: Ceilings,
  plansUrl: string | null,
): Refusal | undefined {
  if (held.machines >= ceilings.maxConcurrentMachines)
    return new Refusal(
      "quota_exceeded",
      `concurrency limit reached: ${allows(ceilings)} ${ceilings.maxConcurrentMachines} machines running at once; ${advice(plansUrl)}`,
      { limit: { of: "maxConcurrentMachines", bound: "<=", value: ceilings.maxConcurrentMachines } },
    );
  const sums: readonly [string, number, number, "maxTotalMemoryMb" | "maxTotalCpus", string][] = [
    ["memory", held.memoryMb, size.memoryMb, "maxTotalMemoryMb", "MB of memory"],
    ["vCPU", held.cpus, size.cpus, "maxTotalCpus", "vCPUs"],
  ];
  for (const [what, taken, requested, of, unit] of sums) {
    const max = ceilings[of];
    if (taken + requested <= max) continue;
    const remedy = requested > max ? "create one with less" : "stop a machine";
    return new Refusal(
      "quota_exceeded",
      `${what} limit reached: ${allows(ceilings)} ${max} ${unit} for all running machines together, ${taken} are in use and this one needs ${requested}; ${remedy}, or ${advice(plansUrl)}`,
      { limit: { of, bound: "<=", value: max } },
    );
  }
  return undefined;
}

/** `sentBytes`: of the month; `nextMonth`: when it ends, in epoch milliseconds. */
export const egressRefusal = (
  { planName, maxEgressGb }: Pick<Ceilings, "planName"> & { readonly maxEgressGb: number },
  { sentBytes, nextMonth }: { readonly sentBytes: number; readonly nextMonth: number },
  plansUrl: string | null,
): Refusal =>
  new Refusal(
    "quota_exceeded",
    `egress limit reached: your ${planName} plan allows machines to send ${maxEgressGb} GB a month, and ${renderGb(sentBytes)} were sent; ${advice(plansUrl)}, or wait for the next month, which begins at ${new Date(nextMonth).toISOString()}`,
    { limit: { of: "maxEgressGb", bound: "<=", value: maxEgressGb } },
  );

/**
 * Throws when the size exceeds the plan's ceiling for one machine. `named`: the sizes that the request itself
 * named; `path`: where it has them.
 */
export function refuseOversize(
  size: { readonly cpus: number; readonly memoryMb: number; readonly diskGb: number },
  named: { readonly cpus?: number | null; readonly memoryMb?: number | null } | null | undefined,
  {
    ceilings,
    plansUrl,
    path,
  }: { readonly ceilings: Ceilings; readonly plansUrl: string | null; readonly path: "" | "resources." },
): void {
  const rules: readonly [number, "maxCpus" | "maxMemoryMb" | "maxDiskGb", string, string | null][] = [
    [size.cpus, "maxCpus", "vCPUs", typeof named?.cpus === "number" ? null : "cpus"],
    [size.memoryMb, "maxMemoryMb", "MB of memory", typeof named?.memoryMb === "number" ? null : "memoryMb"],
    [size.diskGb, "maxDiskGb", "GB of disk", null],
  ];
  for (const [requested, of, unit, omitted] of rules) {
    const max = ceilings[of];
    if (requested <= max) continue;
    // Another plan changes no ceiling of the tenant's own.
    const isOwn = ceilings.own.includes(of);
    const [whose, remedy] = isOwn
      ? ["your tenant's own limit allows", "ask the operator for a larger one"]
      : [allows(ceilings), advice(plansUrl)];
    const rest =
      omitted === null
        ? `${requested} were requested; ${remedy}`
        : `${requested} is the default; name ${path}${omitted}, or ${remedy}`;
    const text = `machine size quota exceeded: ${whose} ${max} ${unit} per machine, and ${rest}`;
    const field = omitted === null ? {} : { field: `${path}${omitted}` };
    throw new Refusal("quota_exceeded", text, { ...field, limit: { of, bound: "<=", value: max } });
  }
}
