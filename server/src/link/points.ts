/**
 * Has a node make an instant of a machine, and remove it (contract/src/link/points.ts).
 */
import { Refusal } from "@flotilla/contract/errors";
import { readMadePoint } from "@flotilla/contract/link/generated";
import type { MadePoint, PointRequest } from "@flotilla/contract/link/points";
import { requestJson } from "./json-request.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { type NodeRefused, NodeUnreachable, NotRunning } from "./refusals.ts";

/** The node copies the machine's memory to its disk. */
const MAKE_TIMEOUT_MS = 2 * 60_000;
const REMOVE_TIMEOUT_MS = 30_000;

interface PointCall {
  readonly pointId: string;
  readonly signal: AbortSignal;
}

/** An attempt to make the point was interrupted on the node: it needs another id. */
export class PointInterrupted extends Error {}

/**
 * A point that the node has made, by this call or an earlier one. Throws NodeUnreachable, also when the
 * answer was lost, PointInterrupted, and a Refusal with what the node says.
 */
export async function makePoint(
  link: NodeLink,
  node: NodeAddress,
  { pointId, signal, ...body }: PointRequest & PointCall,
): Promise<MadePoint> {
  const refused = (code: "conflict" | "no_space", reason: string): Refusal =>
    new Refusal(code, `no point of machine ${body.machineId} is made: ${reason}`);
  const making = requestJson(link, node, {
    method: "PUT",
    path: `/v1/points/${pointId}`,
    body: JSON.stringify(body satisfies PointRequest),
    headersTimeout: MAKE_TIMEOUT_MS,
    signal,
    read: readMadePoint,
    refusal: ({ code, message }: NodeRefused) =>
      code === "interrupted"
        ? new PointInterrupted(message)
        : refused(code === "no_space" ? "no_space" : "conflict", message),
  });
  return await making.catch((error: unknown) => {
    const { cause } = error as Error;
    throw error instanceof NodeUnreachable && cause instanceof NotRunning ? refused("conflict", cause.message) : error;
  });
}

/** The node removes the point, as soon as no machine there needs its files. */
export async function removePoint(link: NodeLink, node: NodeAddress, { pointId, signal }: PointCall): Promise<void> {
  await requestJson(link, node, {
    method: "DELETE",
    path: `/v1/points/${pointId}`,
    headersTimeout: REMOVE_TIMEOUT_MS,
    signal,
    read: () => undefined,
    refusal: ({ message }: NodeRefused) => new Refusal("unavailable", `node ${node.nodeId} refused it: ${message}`),
  });
}
