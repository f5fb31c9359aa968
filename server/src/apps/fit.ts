/**
 * Refuses a change of an app that cannot fit: its plan forbids it, or the nodes have no room, with the
 * numbers.
 *
 * Always: an early refusal only. The statement that starts a machine decides (machines/store.ts).
 */
import { Refusal } from "@flotilla/contract/errors";
import { APP_DISK_GB } from "@flotilla/contract/limits";
import { placementRequest } from "../machines/placement-request.ts";
import type { MachineServices } from "../machines/services.ts";
import type { Ceilings, Totals } from "../usage/quota.ts";
import { refuseOversize } from "../usage/quota.ts";
import { readTotals } from "../usage/store.ts";
import type { ReleaseSpec } from "./release.ts";
import { countActive } from "./store.ts";

export interface Fitting {
  readonly tenantId: string;
  /** null: the app is new. */
  readonly appId: string | null;
  readonly count: number;
  /** How many more may use nodes meanwhile. */
  readonly surge: number;
  readonly image: string;
  readonly spec: ReleaseSpec;
}

type FitServices = Pick<MachineServices, "ceilingsOf" | "context" | "nodes" | "plansUrl">;

export async function refuseUnfit(services: FitServices, fitting: Fitting): Promise<void> {
  const { context, plansUrl } = services;
  const { tenantId, appId, count, surge, spec } = fitting;
  const ceilings = await services.ceilingsOf(tenantId);
  const size = { cpus: spec.cpus, memoryMb: spec.memoryMb, diskGb: APP_DISK_GB };
  refuseOversize(size, size, { ceilings, plansUrl, path: "" });
  const active = appId === null ? 0 : await countActive(context.db, appId);
  const more = Math.max(0, count + (active === 0 ? 0 : surge) - active);
  if (more === 0) return;
  const refusal = overPlan(await readTotals(context.db, tenantId), ceilings, { ...fitting, more, active });
  if (refusal !== undefined) throw refusal;
  await refuseWithoutRoom(services, fitting, more);
}

interface More extends Fitting {
  readonly more: number;
  readonly active: number;
}

/** undefined: the plan allows it. Pure. */
function overPlan(held: Totals, ceilings: Ceilings, { more, active, count, spec }: More): Refusal | undefined {
  const surge = Math.max(0, more + active - count);
  const needs = `${count} instances${surge === 0 ? "" : ` and ${surge} more while they are replaced`}`;
  const sums = [
    ["maxConcurrentMachines", "running machines", held.machines, more],
    ["maxTotalCpus", "vCPUs", held.cpus, more * spec.cpus],
    ["maxTotalMemoryMb", "MB of memory", held.memoryMb, more * spec.memoryMb],
    ["maxTotalDiskGb", "GB of disk", held.diskGb, more * APP_DISK_GB],
  ] as const;
  for (const [of, unit, taken, added] of sums) {
    const max = ceilings[of];
    if (taken + added <= max) continue;
    return new Refusal(
      "quota_exceeded",
      `${needs} do not fit: your ${ceilings.planName} plan allows ${max} ${unit}, ${taken} are in use and ${added} more are needed; ask for fewer or smaller instances, or a smaller batch`,
      { limit: { of, bound: "<=", value: max } },
    );
  }
  return undefined;
}

async function refuseWithoutRoom(
  services: FitServices,
  { tenantId, image, spec }: Fitting,
  more: number,
): Promise<void> {
  const request = await placementRequest(services, {
    tenantId,
    source: { type: "image", reference: image },
    network: { mode: spec.hasNetwork ? "open" : "blocked" },
    cpus: spec.cpus,
    memoryMb: spec.memoryMb,
    nodeLabels: {},
    nodeId: null,
    origin: null,
  });
  // No node has this name: as if they left one.
  const placed = await services.nodes.planElsewhere(
    "",
    Array.from({ length: more }, () => ({ request, isActive: true })),
  );
  const refused = placed.find(({ nodeId }) => nodeId === null);
  if (refused === undefined || refused.nodeId !== null) return;
  const fits = placed.filter(({ nodeId }) => nodeId !== null).length;
  const text = `the nodes have room for ${fits} of the ${more} instances that are needed now, of ${spec.cpus} vCPUs and ${spec.memoryMb} MB each: ${refused.reason}; ask for fewer or smaller ones, or for another node`;
  throw new Refusal("no_capacity", text);
}
