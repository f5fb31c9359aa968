/**
 * Where each clone of a batch begins: on the node that has the instant as long as that has room, and then on
 * others, which get a copy of it.
 *
 * Always: it is decided before the source is paused. The ceilings of a node are checked again by the
 * statement that starts a clone there.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OperationRecord } from "../family.ts";
import { placementRequest } from "../machines/placement-request.ts";
import type { MachineOrigin, MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { MEMORY_FORMAT_LABEL, type PlacementRequest } from "../placement/place.ts";
import { insertCopy } from "./store.ts";

type OriginServices = Pick<MachineServices, "context" | "nodes">;
type Source = Omit<Parameters<typeof placementRequest>[1], "nodeId" | "origin"> & Pick<MachineRecord, "tenantId">;

/** One for each clone. Throws a Refusal when they do not all have room. */
export async function originsOf(
  services: OriginServices,
  { id: operationId, tenantId }: OperationRecord,
  { source, origin, count }: { readonly source: Source; readonly origin: MachineOrigin; readonly count: number },
): Promise<readonly MachineOrigin[]> {
  const { context, nodes } = services;
  const { machineId, nodeId: homeId, hasMemory } = origin;
  const placements = await nodes.planFrom(await requestOf(services, source, origin), { homeId, count });
  const copies = new Map<string, MachineOrigin>();
  const origins: MachineOrigin[] = [];
  for (const [at, placement] of placements.entries()) {
    const { nodeId } = placement;
    if (nodeId === null)
      throw new Refusal("no_capacity", `no node has room for branch ${at + 1} of ${count}: ${placement.reason}`);
    let begins = nodeId === homeId ? origin : copies.get(nodeId);
    if (begins === undefined) {
      const id = context.ids.make("point");
      const copy = await insertCopy(context, { id, tenantId, operationId, machineId, nodeId, hasMemory });
      begins = { ...origin, pointId: copy.id, nodeId };
      copies.set(nodeId, begins);
    }
    origins.push(begins);
  }
  return origins;
}

/** What a clone needs of its node. */
async function requestOf(
  services: OriginServices,
  source: Source,
  { nodeId, hasMemory }: MachineOrigin,
): Promise<PlacementRequest> {
  const home = await services.nodes.find(nodeId);
  const request = await placementRequest(services, { ...source, nodeId, origin: null });
  // The disk has programs of the architecture on which its machine ran.
  const arch = request.arch ?? home?.arch ?? null;
  return { ...request, arch, memoryFormat: hasMemory ? (home?.labels[MEMORY_FORMAT_LABEL] ?? "unknown") : null };
}
