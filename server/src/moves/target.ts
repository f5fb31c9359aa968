/**
 * Chooses the node to which a machine moves.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { PlacementRequest } from "../placement/place.ts";
import { placementRequest } from "../machines/placement-request.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";

export interface TargetRequest {
  /** The only node that will do; null: any. */
  readonly toId: string | null;
  /** What the machine's disk takes. */
  readonly diskBytes: number;
  /** Format of its memory: a node that can load it is preferred. null: it has none. */
  readonly memoryFormat: string | null;
}

/** The best other node. Throws a Refusal that says why there is none. */
export async function chooseTarget(
  services: Pick<MachineServices, "nodes">,
  machine: MachineRecord,
  { toId, diskBytes, memoryFormat }: TargetRequest,
): Promise<string> {
  const { id, nodeId } = machine;
  if (nodeId === null || nodeId === toId)
    throw new Refusal("conflict", `machine ${id} is on node ${nodeId} already; name another node`);
  const request = { ...(await targetRequest(services, machine, diskBytes)), memoryFormat };
  const placement = await services.nodes.placeElsewhere(request, { fromId: nodeId, toId });
  if (placement.nodeId !== null) return placement.nodeId;
  throw new Refusal("no_capacity", `machine ${id} cannot be moved: ${placement.reason}`);
}

/** What a machine that has a disk needs of another node. */
export async function targetRequest(
  services: Pick<MachineServices, "nodes">,
  machine: MachineRecord,
  diskBytes: number,
): Promise<PlacementRequest> {
  const request = await placementRequest(services, machine);
  // Its disk holds programs of the architecture on which it ran.
  const arch = request.arch ?? (await services.nodes.find(machine.nodeId ?? ""))?.arch ?? null;
  return { ...request, arch, diskBytes };
}
