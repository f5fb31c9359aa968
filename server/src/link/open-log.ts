/**
 * A machine's log as its node sends it: lines that are there, and with `isFollowing` those that come.
 */
import { type NodeAddress, NodeAway, type NodeLink } from "./node-link.ts";

const HEADERS_TIMEOUT_MS = 10_000;

export type NodeLog = AsyncIterable<Uint8Array>;

export interface LogOptions {
  readonly machineId: string;
  /** The last `tail` lines, or what follows a position that the node has named. */
  readonly from: { readonly tail: number } | { readonly after: string };
  readonly isFollowing: boolean;
  /** Ends the reading. */
  readonly signal: AbortSignal;
}

/** null: the node does not have the machine. Throws NodeAway for every other answer than the log. */
export async function openLogOnNode(
  link: NodeLink,
  node: NodeAddress,
  { machineId, from, isFollowing, signal }: LogOptions,
): Promise<NodeLog | null> {
  const where = "after" in from ? `after=${from.after}` : `tail=${from.tail}`;
  try {
    const { statusCode, body } = await link.pool(node.address).request({
      method: "GET",
      path: `/v1/machines/${machineId}/logs?${where}${isFollowing ? "&follow=1" : ""}`,
      headersTimeout: HEADERS_TIMEOUT_MS,
      // A log may be silent for as long as it likes.
      bodyTimeout: 0,
      signal,
    });
    if (statusCode === 200) return body;
    await body.dump();
    if (statusCode === 404) return null;
    throw new Error(`the log was answered with ${statusCode}`);
  } catch (error) {
    throw new NodeAway(node.nodeId, error);
  }
}
