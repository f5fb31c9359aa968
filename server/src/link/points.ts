/**
 * Has a node make an instant of a machine, and remove it; has another node make a copy of it; and has a node
 * say what memory a machine takes (contract/src/link/points.ts).
 */
import { Refusal } from "@flotilla/contract/errors";
import {
  readIncomingState,
  readMadePoint,
  readMemoryUse as readMemoryUseMessage,
  readOutgoingPoint,
} from "@flotilla/contract/link/generated";
import type { AwaitedFile, IncomingState } from "@flotilla/contract/link/moves";
import type { MadePoint, MemoryUse, OutgoingPoint, PointFacts, PointRequest } from "@flotilla/contract/link/points";
import { requestJson } from "./json-request.ts";
import { askInMove, relay, type RelayNodes, type RelayOptions } from "./moves.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { type NodeRefused, NodeUnreachable, NotRunning } from "./refusals.ts";

/** The node copies the machine's memory to its disk. */
const MAKE_TIMEOUT_MS = 2 * 60_000;
const REMOVE_TIMEOUT_MS = 30_000;
const MEMORY_TIMEOUT_MS = 5_000;

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

/** null: the machine does not run there, or the node does not answer. */
export async function readMemoryUse(
  link: NodeLink,
  node: NodeAddress,
  { machineId, signal }: { readonly machineId: string; readonly signal: AbortSignal },
): Promise<MemoryUse | null> {
  const reading = requestJson(link, node, {
    method: "GET",
    path: `/v1/machines/${machineId}/memory`,
    headersTimeout: MEMORY_TIMEOUT_MS,
    signal,
    read: readMemoryUseMessage,
    refusal: ({ message }: NodeRefused) => new Refusal("unavailable", message),
  });
  return await reading.catch((error: unknown) => {
    if (error instanceof NodeUnreachable || error instanceof Refusal) return null;
    throw error;
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

/** A copy of a point on another node. */
export interface CopyCall {
  readonly tenantId: string;
  readonly pointId: string;
  /** The id of the copy. */
  readonly copyId: string;
  /** The operation. */
  readonly moveId: string;
  readonly signal: AbortSignal;
}

const outgoingPath = ({ pointId }: CopyCall): string => `/v1/points/${pointId}/outgoing`;
const incomingPath = ({ copyId, moveId }: CopyCall): string => `/v1/points/${copyId}/incoming/${moveId}`;

/** What a node has of a point. Throws as the functions of moves.ts do; so do the other ones here. */
export const describePoint = (link: NodeLink, node: NodeAddress, call: CopyCall): Promise<OutgoingPoint> =>
  askInMove(link, node, { method: "GET", path: outgoingPath(call), signal: call.signal }, readOutgoingPoint);

/** Has the target expect a copy. `isMachine` of the answer: the copy is a point there. */
export async function beginCopy(
  link: NodeLink,
  node: NodeAddress,
  call: CopyCall,
  { image, root, files, memory }: OutgoingPoint,
): Promise<IncomingState> {
  // No machine has the id of a point, and so none of a later generation.
  const body = JSON.stringify({ generation: 1, image, root, files, memory, memoryBase: null });
  const request = { method: "PUT", path: incomingPath(call), body, signal: call.signal } as const;
  return await askInMove(link, node, request, readIncomingState);
}

export async function relayPointFile(
  link: NodeLink,
  nodes: RelayNodes,
  call: CopyCall,
  file: AwaitedFile,
  options: RelayOptions,
): Promise<number> {
  const paths = { from: outgoingPath(call), to: incomingPath(call) };
  return await relay(link, nodes, { ...call, ...paths }, { kind: "file", ...file, since: null }, options);
}

/** Has the target make a point of what has arrived. */
export async function commitCopy(link: NodeLink, node: NodeAddress, call: CopyCall, facts: PointFacts): Promise<void> {
  const path = `${incomingPath(call)}/commit`;
  const request = { method: "POST", path, body: JSON.stringify(facts), signal: call.signal } as const;
  await askInMove(link, node, request, () => undefined);
}
