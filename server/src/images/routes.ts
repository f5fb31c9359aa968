/**
 * The handlers of images: listing cached images, fetching images to nodes, uploading an archive to a node,
 * and removing one.
 *
 * Owns nothing: the nodes are asked for each request. A tenant sees the images it fetched itself and local
 * images; an admin sees all. A node that does not answer is left out of the list, unless no node answers.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ImageInfo } from "@flotilla/contract/images";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { pulledAs } from "../machines/record.ts";
import { findMachine } from "../machines/store.ts";
import { noteImage } from "../nodes/image-store.ts";
import { listNodes, type NodeRecord } from "../nodes/store.ts";
import { operationInfo } from "../operations/view.ts";
import type { Services } from "../services.ts";
import { imageInfo, imagesOf, imagesOfNodes, textOf } from "./list.ts";
import { requestPull } from "./pull.ts";
import { removeImage } from "./remove.ts";
import { checkReference } from "../machines/image-reference.ts";
import { canonicalReference } from "@flotilla/contract/reference";

export function imageHandlers(
  services: Pick<Services, "context" | "link" | "registries">,
): HandlersOf<"listImages" | "pullImage" | "importImage" | "deleteImage" | "listMachineImages" | "pullMachineImage"> {
  const { context, link } = services;
  return {
    async listImages({ caller, query, signal }) {
      const asker = caller.tenantId;
      const filter = { tenantId: caller.isAdmin ? null : asker, asker, signal };
      const found = await imagesOfNodes(link, await listNodes(context.db), filter);
      const keyOf = ({ reference, digest, nodeId }: ImageInfo): string => `${reference} ${digest} ${nodeId}`;
      const page = listPage(found, query, { path: "/v1/images", keyOf });
      return { status: 200, ...page, json: await textOf(link.turns, asker, page.body) };
    },
    async pullImage(request) {
      const { reference, nodeId = null } = request.body;
      const { tenantId } = request.caller;
      const operationId = request.newId("operation");
      const operation = await requestPull(services, { operationId, tenantId, reference, nodeId });
      return { status: 202, body: operationInfo(operation) };
    },
    async listMachineImages({ caller, params }) {
      const machine = await findMachine(context.db, { tenantId: caller.tenantId, id: params.id });
      if (machine === undefined) throw machineNotFound(params.id);
      if (machine.nodeId === null || machine.nodeAddress === null) return { status: 200, body: { images: [] } };
      const query = { tenantId: machine.tenantId, asker: caller.tenantId };
      const images = await imagesOf(link, { id: machine.nodeId, address: machine.nodeAddress }, query);
      const wanted = canonicalReference(pulledAs(machine.source));
      return {
        status: 200,
        body: { images: images.filter(({ reference }) => canonicalReference(reference) === wanted) },
      };
    },
    async pullMachineImage({ caller, params, body, signal }) {
      checkReference(services.registries, body.image);
      const arch = archOf(body.ociPlatform ?? null);
      const machine = await findMachine(context.db, { tenantId: caller.tenantId, id: params.id });
      if (machine === undefined) throw machineNotFound(params.id);
      const { nodeId, nodeAddress } = machine;
      if (nodeId === null || nodeAddress === null) throw nodeless(machine.id);
      const request = { reference: body.image, arch, tenantId: machine.tenantId };
      const image = await link.pullImage({ nodeId, address: nodeAddress }, request, { onProgress: () => {}, signal });
      await noteImage(context.db, nodeId, image, machine.tenantId);
      return { status: 200, body: imageInfo(nodeId, image) };
    },
    async importImage({ query, body, signal }) {
      const node = await chooseNode(services, query.nodeId);
      const address = { nodeId: node.id, address: node.address };
      const image = await link.importImage(address, query.reference, body, signal);
      await noteImage(context.db, node.id, image, null);
      return { status: 200, body: imageInfo(node.id, image) };
    },
    async deleteImage({ query, signal }) {
      await removeImage(services, { reference: query.reference, nodeId: query.nodeId ?? null, signal });
      return { status: 204 };
    },
  };
}

const nodeless = (id: string): Refusal =>
  new Refusal(
    "conflict",
    `machine ${id} has no node before its first start; fetch the image to all nodes with POST /v1/images/pull`,
    { call: "POST /v1/images/pull" },
  );

/** `linux/amd64` → `amd64`; null: the node's own. */
function archOf(platform: string | null): string | null {
  if (platform === null) return null;
  const arch = /^linux\/(amd64|arm64)$/.exec(platform)?.[1];
  if (arch === undefined)
    throw new Refusal("invalid_request", `ociPlatform ${JSON.stringify(platform)} is not linux/amd64 or linux/arm64`, {
      field: "ociPlatform",
    });
  return arch;
}

async function chooseNode({ context }: Pick<Services, "context">, nodeId: string | undefined): Promise<NodeRecord> {
  const nodes = (await listNodes(context.db)).filter(({ status }) => status === "ready");
  const node = nodeId === undefined ? nodes[0] : nodes.find(({ id }) => id === nodeId);
  if (nodeId !== undefined && node === undefined)
    throw new Refusal("not_found", `node ${nodeId} was not found among the nodes that are ready`);
  if (node === undefined)
    throw new Refusal("unavailable", "no node is ready to receive the image; check that one runs");
  if (nodeId === undefined && nodes.length > 1) {
    const ids = nodes.map(({ id }) => id).join(", ");
    throw new Refusal("invalid_request", `there are several nodes: choose one of them with nodeId: ${ids}`, {
      field: "nodeId",
    });
  }
  return node;
}
