/**
 * What an image reference means now: a node asks the registry, and has the image afterwards.
 *
 * Always: instances of a release are made from the digest, so a tag that moves changes no running app. An
 * image that was made or imported on a node has no digest to be fetched by, and is named by its tag.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { NodeImage } from "@flotilla/contract/link/link";
import { parseReference } from "@flotilla/contract/reference";
import { checkReference } from "../machines/image-reference.ts";
import { placementRequest } from "../machines/placement-request.ts";
import type { MachineServices } from "../machines/services.ts";
import type { ReleaseSpec } from "./release.ts";

export interface Resolved {
  readonly digest: string;
  /** The lowest port that it exposes; null: none. */
  readonly exposedPort: number | null;
  /** What instances are made from. */
  readonly reference: string;
}

export type ResolveServices = Pick<MachineServices, "context" | "link" | "nodes" | "registries">;

/** Throws a Refusal that says why there is no such image, or no node that can have it. */
export async function resolveImage(
  services: ResolveServices,
  {
    tenantId,
    image,
    spec,
    signal,
  }: {
    readonly tenantId: string;
    readonly image: string;
    readonly spec: Pick<ReleaseSpec, "cpus" | "memoryMb">;
    readonly signal: AbortSignal;
  },
): Promise<Resolved> {
  const { link, nodes, registries } = services;
  checkReference(registries, image);
  const { registry, repository, isLocal, name } = parseReference(image);
  const request = await placementRequest(services, {
    tenantId,
    source: { type: "image", reference: image },
    network: { mode: isLocal ? "blocked" : "open" },
    cpus: spec.cpus,
    memoryMb: spec.memoryMb,
    nodeLabels: {},
    nodeId: null,
    origin: null,
  });
  const placement = await nodes.place(request);
  const node = placement.nodeId === null ? undefined : await nodes.find(placement.nodeId);
  if (node === undefined) {
    const isNever = placement.nodeId === null && placement.canNever;
    const why = placement.nodeId === null ? placement.reason : "it has just left";
    const advice = isNever
      ? "ask for smaller instances, or the operator for a larger node"
      : "try again, or add a node";
    throw new Refusal(
      isNever ? "no_capacity" : "unavailable",
      `no node has room for an instance of ${image}, to ask for its image: ${why}; ${advice}`,
    );
  }
  const pull = (reference: string): Promise<NodeImage> => {
    const { id: nodeId, address } = node;
    const ask = { reference, arch: null, tenantId };
    return link.pullImage({ nodeId, address }, ask, { onProgress: () => undefined, signal });
  };
  const { digest, exposedPort } = await pull(image);
  if (isLocal) return { digest, exposedPort, reference: name };
  // Its node then has the image under the name that instances have, and is preferred for them.
  const pinned = `${registry}/${repository}@${digest}`;
  await pull(pinned);
  return { digest, exposedPort, reference: pinned };
}
