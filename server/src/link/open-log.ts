/**
 * A machine's log as its node sends it: existing lines and, with `isFollowing`, new ones.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeUnreachable, NodeRefused } from "./refusals.ts";

const HEADERS_TIMEOUT_MS = 10_000;

export type NodeLog = AsyncIterable<Uint8Array>;

export interface LogOptions {
  readonly machineId: string;
  /** The last `tail` lines, or the lines after a position that the node returned earlier. */
  readonly from: { readonly tail: number } | { readonly after: string };
  readonly isFollowing: boolean;
  /** Ends the reading. */
  readonly signal: AbortSignal;
}

/** null: the node does not have the machine. Throws NodeUnreachable for every other answer than the log. */
export async function openLogOnNode(
  link: NodeLink,
  node: NodeAddress,
  { machineId, from, isFollowing, signal }: LogOptions,
): Promise<NodeLog | null> {
  const where = "after" in from ? `after=${from.after}` : `tail=${from.tail}`;
  try {
    return await link.open(node, {
      method: "GET",
      path: `/v1/machines/${machineId}/logs?${where}${isFollowing ? "&follow=1" : ""}`,
      headersTimeout: HEADERS_TIMEOUT_MS,
      signal,
    });
  } catch (error) {
    if (error instanceof NodeRefused && error.status === 404) return null;
    throw error instanceof Refusal ? error : new NodeUnreachable(node.nodeId, error);
  }
}
