/**
 * The states of a node as a table: which event leads from which status to which.
 *
 * Pure. Always: the statements of store.ts take from this table which rows an event may change and what they
 * become, so that the decision and the write cannot differ.
 */
import { NODE_STATUSES, type NodeStatus } from "@flotilla/contract/nodes";

/**
 * The incarnation of the agent that a restored database has for each node. A report of changes only is
 * refused then, so that the node registers again and reports everything it has.
 */
export const RESTORED_AGENT = "restored";

export const NODE_EVENTS = [
  /**
   * Registered with a join token, or with the server's own. A join token admits no node that is known and not
   * revoked.
   */
  "admitted",
  /** Its agent has restarted and registers with its credential. */
  "registered",
  "heartbeat",
  /** No heartbeat for too long. */
  "silent",
  "drainRequested",
  "drained",
  /** Its drain failed or was abandoned. */
  "drainFailed",
  /** An operator opens the node again. */
  "drainCanceled",
  "revoked",
] as const;
export type NodeEvent = (typeof NODE_EVENTS)[number];

// A missing entry means that the event is refused, or changes nothing.
const TRANSITIONS: Readonly<Record<NodeEvent, Partial<Readonly<Record<NodeStatus, NodeStatus>>>>> = {
  admitted: { ready: "ready", draining: "ready", drained: "ready", unreachable: "ready", revoked: "ready" },
  // A node drained for maintenance is ready again when its agent is back. An unreachable one stays so until
  // it reports.
  registered: { ready: "ready", draining: "draining", drained: "ready", unreachable: "unreachable" },
  heartbeat: { ready: "ready", draining: "draining", drained: "drained", unreachable: "ready" },
  // A draining node stays so: its drain notices the silence and fails.
  silent: { ready: "unreachable" },
  drainRequested: { ready: "draining", draining: "draining", drained: "drained" },
  drained: { draining: "drained", drained: "drained" },
  drainFailed: { draining: "ready", ready: "ready" },
  drainCanceled: { draining: "ready", drained: "ready", ready: "ready" },
  revoked: {
    ready: "revoked",
    draining: "revoked",
    drained: "revoked",
    unreachable: "revoked",
    revoked: "revoked",
  },
};

/** null: the event does not apply to this status. */
export const nextStatus = (status: NodeStatus, event: NodeEvent): NodeStatus | null =>
  TRANSITIONS[event][status] ?? null;

/** The statuses to which an event applies, and, in the same order, the resulting ones. */
export function movesOf(event: NodeEvent): {
  readonly from: readonly NodeStatus[];
  readonly to: readonly NodeStatus[];
} {
  const from = NODE_STATUSES.filter((status) => nextStatus(status, event) !== null);
  return { from, to: from.map((status) => nextStatus(status, event) ?? status) };
}
