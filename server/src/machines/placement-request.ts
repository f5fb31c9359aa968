/**
 * What a machine needs of the node on which it is placed: its size, architecture, labels and image.
 *
 * A start does not fetch an image that was made or imported on a node (`local/…`), or any image of a machine
 * whose network is blocked. Such a machine must be placed where its image is, because its first start binds
 * it. Other images are preferred where they are.
 *
 * Always: nodes report their images, so no node is called. With a single node nothing is queried.
 */
import { canonicalReference } from "@flotilla/contract/reference";
import type { PlacementRequest } from "../placement/place.ts";
import type { Services } from "../services.ts";
import { type MachineRecord, pulledAs } from "./record.ts";

type PlacedMachine = Pick<
  MachineRecord,
  "tenantId" | "source" | "network" | "cpus" | "memoryMb" | "nodeLabels" | "nodeId" | "origin"
>;
type PlacingServices = Pick<Services, "nodes">;

/** Request for a machine; the image of one that has a node already is not looked for. */
export async function placementRequest(services: PlacingServices, machine: PlacedMachine): Promise<PlacementRequest> {
  const { cpus, memoryMb, source, nodeLabels, nodeId, origin } = machine;
  const needs = { cpus, memoryMb, arch: source.arch ?? null, nodeLabels };
  // A branch begins where its point is.
  if (nodeId === null && origin !== null)
    return { ...needs, holders: { ids: new Set([origin.nodeId]), isRequired: true } };
  const hasChoice = nodeId === null && (await services.nodes.hasSeveral());
  const holders = hasChoice ? await imageHolders(services, machine) : null;
  return { ...needs, holders };
}

/** null when none has the image: any node will do then, and the start's refusal says why it fails. */
export async function imageHolders(
  services: PlacingServices,
  machine: Pick<PlacedMachine, "tenantId" | "source" | "network">,
): Promise<PlacementRequest["holders"]> {
  const { tenantId, source } = machine;
  const query = { reference: canonicalReference(pulledAs(source)), architecture: source.arch ?? null, tenantId };
  const ids = await services.nodes.withImage(query);
  return ids.size === 0 ? null : { ids, isRequired: needsImage(machine) };
}

/** Whether a start does not fetch the image, so that its node must have it. */
export const needsImage = ({ source, network }: Pick<PlacedMachine, "source" | "network">): boolean =>
  network.mode === "blocked" || source.reference.startsWith("local/");
