/**
 * Removes a local image from the nodes that have it: no registry could bring it back, so a node never removes
 * one by itself.
 *
 * Owns nothing. A crash in the middle leaves the image on some nodes, and a repetition removes it there.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { parseReference } from "@flotilla/contract/reference";
import { NodeRefused } from "../link/refusals.ts";
import { forgetLocalImage, nodesWithLocalImage } from "../nodes/image-store.ts";
import { listNodes, type NodeRecord } from "../nodes/store.ts";
import type { Services } from "../services.ts";

const NODES_AT_A_TIME = 16;

export interface RemovedImage {
  readonly reference: string;
  /** null: all nodes. */
  readonly nodeId: string | null;
  readonly signal: AbortSignal;
}

/** Throws a Refusal when no node has it, and when one that has it does not remove it. */
export async function removeImage(
  { context, link }: Pick<Services, "context" | "link">,
  { reference, nodeId, signal }: RemovedImage,
): Promise<void> {
  checkLocal(reference);
  const having = new Set(await nodesWithLocalImage(context.db, reference));
  const nodes = (await listNodes(context.db)).filter(
    ({ id, status }) => status !== "revoked" && having.has(id) && (nodeId === null || id === nodeId),
  );
  if (nodes.length === 0) {
    const where = nodeId === null ? "no node has" : `node ${nodeId} does not have`;
    throw new Refusal("not_found", `${where} the image ${reference}; GET /v1/images lists what there is`, {
      resource: { kind: "image", id: reference },
      call: "GET /v1/images",
    });
  }
  const reasons = await mapAtMost(NODES_AT_A_TIME, nodes, async (node) => {
    signal.throwIfAborted();
    try {
      await link.removeImage({ nodeId: node.id, address: node.address }, reference, signal);
      await forgetLocalImage(context.db, node.id, reference);
      return null;
    } catch (error) {
      signal.throwIfAborted();
      return whyNot(node, error);
    }
  });
  const [reason] = reasons.filter((one) => one !== null);
  if (reason !== undefined) throw new Refusal("unavailable", `the image ${reference} was not removed: ${reason}`);
}

function checkLocal(reference: string): void {
  let isLocal: boolean;
  try {
    ({ isLocal } = parseReference(reference));
  } catch (error) {
    throw new Refusal("invalid_request", ownMessageOf(error));
  }
  if (!isLocal)
    throw new Refusal(
      "invalid_request",
      `${reference} is not a local image; images of registries are removed by themselves when room is needed`,
    );
}

function whyNot({ id }: NodeRecord, error: unknown): string {
  if (error instanceof Refusal) return error.message;
  if (error instanceof NodeRefused) return `node ${id}: ${error.message}`;
  throw error;
}
