/**
 * Why a machine is on its node, or where it would be placed now and why not elsewhere. For operators;
 * reserves nothing.
 */
import { CPUS_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { PlacementExplanation, PlacementRequest } from "@flotilla/contract/placement";
import { Refusal } from "@flotilla/contract/errors";
import { type PlacementRequest as PlacedRequest, type Score, total, type Verdict } from "../placement/place.ts";
import { refuseOverBudget } from "../usage/budget.ts";
import { refuseOverEgress } from "../usage/egress.ts";
import { activeRefusal } from "../usage/quota.ts";
import { isSuspended, readTotals } from "../usage/store.ts";
import { type Reason, reasonOf } from "./placement-reason.ts";
import { madeFrom } from "./from-package.ts";
import { imageHolders, needsImage } from "./placement-request.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { isActive } from "./state.ts";
import { findAnyMachine } from "./store.ts";

type Described = Pick<
  MachineRecord,
  "tenantId" | "source" | "network" | "cpus" | "memoryMb" | "nodeLabels" | "nodeId"
> & {
  /** null: it does not exist yet. */
  readonly record: MachineRecord | null;
};

/** Explains the placement of a machine of any tenant. Throws a Refusal when there is none. */
export async function explainMachinePlacement(
  services: Pick<MachineServices, "ceilingsOf" | "context" | "nodes" | "plansUrl">,
  id: string,
): Promise<PlacementExplanation> {
  const record = await findAnyMachine(services.context.db, id);
  if (record === undefined || record.deletedAt !== null) throw machineNotFound(id);
  return explained(services, { ...record, record });
}

/** Explains the placement of a machine that the tenant would create. */
export async function explainPlacement(
  services: Pick<MachineServices, "ceilingsOf" | "context" | "nodes" | "plansUrl" | "registries" | "registry">,
  tenantId: string,
  request: PlacementRequest,
): Promise<PlacementExplanation> {
  const { resources, network, nodeLabels } = request;
  return await explained(services, {
    tenantId,
    source: (await madeFrom(services, request, tenantId)).source,
    network: { mode: network?.mode ?? "open" },
    cpus: resources?.cpus ?? CPUS_DEFAULT,
    memoryMb: resources?.memoryMb ?? MEMORY_MB_DEFAULT,
    nodeLabels: nodeLabels ?? {},
    nodeId: null,
    record: null,
  });
}

async function explained(
  services: Pick<MachineServices, "ceilingsOf" | "context" | "nodes" | "plansUrl">,
  machine: Described,
): Promise<PlacementExplanation> {
  const { nodeId, record, source } = machine;
  const active = record !== null && isActive(record);
  const request = await requestOf(services, machine);
  const explanation = await services.nodes.explain(request, {
    homeId: nodeId,
    promisedOn: active ? [nodeId, record.moveStops ? null : record.moveNodeId] : [],
  });
  const { reason, advice } = reasonOf({
    machine: record,
    explanation,
    tenantRefusal: active ? null : await tenantRefusal(services, machine),
    missingImage: request.holders?.ids.size === 0 && needsImage(machine) ? source.reference : null,
  });
  return {
    nodeId: nodeId ?? explanation.placement.nodeId,
    hasDisk: nodeId !== null,
    reason,
    advice,
    filters: explanation.filters.map(({ name, left }) => ({ name, left })),
    nodes: explanation.verdicts.map(shown),
  };
}

/**
 * As a start, or of a machine with a disk a move, places it. An image that no node has excludes none, and
 * costs the same everywhere.
 */
async function requestOf(services: Pick<MachineServices, "nodes">, machine: Described): Promise<PlacedRequest> {
  const { cpus, memoryMb, source, nodeLabels, nodeId } = machine;
  const described = { cpus, memoryMb, arch: source.arch ?? null, nodeLabels };
  if (nodeId !== null) {
    // The disk brings its image, and holds programs of the architecture on which it ran.
    const arch = described.arch ?? (await services.nodes.find(nodeId))?.arch ?? null;
    return { ...described, arch, holders: null };
  }
  const holders = await imageHolders(services, machine);
  return { ...described, holders: holders ?? { ids: new Set(), isRequired: false } };
}

/** One that does not exist yet has no hold. */
const sizeOf = ({ record, cpus, memoryMb }: Described) => ({ id: record?.id ?? "", cpus, memoryMb });

/** Why the tenant may not start the machine now; null: it may. */
async function tenantRefusal(
  services: Pick<MachineServices, "ceilingsOf" | "context" | "plansUrl">,
  machine: Described,
): Promise<Reason | null> {
  const { context, plansUrl } = services;
  const { tenantId } = machine;
  if (await isSuspended(context.db, tenantId))
    return {
      reason: `tenant ${tenantId} is suspended`,
      advice: `\`flotilla tenant reactivate ${tenantId}\` ends the suspension`,
    };
  const ceilings = await services.ceilingsOf(tenantId);
  const overMonth = await refuseOverBudget(context, tenantId, ceilings, sizeOf(machine))
    .then(() => refuseOverEgress(context, tenantId, ceilings, plansUrl))
    .then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof Refusal) return error;
        throw error;
      },
    );
  const refusal = overMonth ?? activeRefusal(machine, await readTotals(context.db, tenantId), ceilings, plansUrl);
  if (refusal === undefined) return null;
  return {
    reason: refusal.message,
    advice: `stop machines of tenant ${tenantId}, or give it a larger plan: \`flotilla tenant update ${tenantId} --plan PLAN\``,
  };
}

function shown(verdict: Verdict): PlacementExplanation["nodes"][number] {
  const { nodeId, filter, score } = verdict;
  return {
    nodeId,
    filter,
    reason: verdict.filter === null ? null : verdict.reason,
    score: score === null ? null : { ...rounded(score), total: round(total(score)) },
  };
}

const round = (value: number): number => Math.round(value * 1000) / 1000;
const rounded = ({ promised, packing, busy, pressure, image }: Score) => ({
  promised: round(promised),
  packing: round(packing),
  busy: round(busy),
  pressure: round(pressure),
  image: round(image),
});
