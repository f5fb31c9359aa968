/**
 * Why a machine is on its node, or where it would be placed now and why not elsewhere. For operators; reserves nothing.
 */
import { CPUS_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { PlacementExplanation, PlacementRequest } from "@flotilla/contract/placement";
import { type Explanation, type Score, total, type Verdict } from "../placement/place.ts";
import { imageHolders } from "./placement-request.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { machineNotFound } from "./start.ts";
import { isActive } from "./state.ts";
import { findAnyMachine } from "./store.ts";

type Described = Pick<
  MachineRecord,
  "tenantId" | "source" | "network" | "cpus" | "memoryMb" | "nodeLabels" | "nodeId"
> & {
  /** It runs or is about to. */
  readonly isActive: boolean;
};

/** Of a machine of any tenant. Throws a Refusal when there is none. */
export async function explainMachinePlacement(services: MachineServices, id: string): Promise<PlacementExplanation> {
  const machine = await findAnyMachine(services.context.db, id);
  if (machine === undefined || machine.deletedAt !== null) throw machineNotFound(id);
  return explained(services, { ...machine, isActive: isActive(machine) });
}

/** Of a machine that the tenant would create. */
export function explainPlacement(
  services: MachineServices,
  tenantId: string,
  { source, resources, network, nodeLabels }: PlacementRequest,
): Promise<PlacementExplanation> {
  return explained(services, {
    tenantId,
    source,
    network: { mode: network?.mode ?? "open" },
    cpus: resources?.cpus ?? CPUS_DEFAULT,
    memoryMb: resources?.memoryMb ?? MEMORY_MB_DEFAULT,
    nodeLabels: nodeLabels ?? {},
    nodeId: null,
    isActive: false,
  });
}

async function explained(services: MachineServices, machine: Described): Promise<PlacementExplanation> {
  const { cpus, memoryMb, source, nodeLabels, nodeId } = machine;
  const holders = await imageHolders(services, machine);
  const request = { cpus, memoryMb, arch: source.arch ?? null, nodeLabels, holders };
  const explanation = await services.nodes.explain(request, machine.isActive ? nodeId : null);
  const refusal = nodeId === null || machine.isActive ? null : await services.nodes.startRefusal(nodeId, request);
  return {
    nodeId: nodeId ?? explanation.placement.nodeId,
    hasDisk: nodeId !== null,
    reason: nodeId === null ? reasonOf(explanation) : diskReason(nodeId, refusal, machine.isActive),
    filters: explanation.filters.map(({ name, left }) => ({ name, left })),
    nodes: explanation.verdicts.map(shown),
  };
}

function diskReason(nodeId: string, refusal: string | null, isActive: boolean): string {
  if (isActive) return `the machine runs on node ${nodeId}, which has its disk`;
  if (refusal === null) return `the machine's disk is on node ${nodeId}, so it starts there`;
  return `the machine's disk is on node ${nodeId}, which refuses its start: ${refusal}`;
}

function reasonOf({ placement, verdicts }: Explanation): string {
  if (placement.nodeId === null) return placement.reason;
  const fitting = verdicts.filter(({ filter }) => filter === null).length;
  if (fitting === 1) return `node ${placement.nodeId} is the only one that fits`;
  return `node ${placement.nodeId} has the lowest score of ${fitting} that fit`;
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
const rounded = ({ promised, packing, busy, image }: Score) => ({
  promised: round(promised),
  packing: round(packing),
  busy: round(busy),
  image: round(image),
});
