/**
 * The life of a node as a table: which status an event leads to from which.
 *
 * Pure. Always: the statements of store.ts take from here which rows an event may change and what they become, so that
 * what is decided and what is written cannot part.
 */
import { NODE_STATUSES, type NodeStatus } from "@flotilla/contract/nodes";

export const NODE_EVENTS = [
  /** Let in with a join token, or with the server's own. A join token lets in no node that is known and not revoked. */
  "admitted",
  /** Its agent has started again and registers with its credential. */
  "registered",
  "heartbeat",
  /** No heartbeat for too long. */
  "silent",
  "drainAsked",
  "drained",
  /** Its drain failed or was given up. */
  "drainFailed",
  "revoked",
] as const;
export type NodeEvent = (typeof NODE_EVENTS)[number];

// What is missing is refused, or changes nothing.
const TRANSITIONS: Readonly<Record<NodeEvent, Partial<Readonly<Record<NodeStatus, NodeStatus>>>>> = {
  admitted: { ready: "ready", draining: "ready", drained: "ready", unreachable: "ready", revoked: "ready" },
  // What was drained for work on its host is open again when its agent is back. It is unreachable until it reports.
  registered: { ready: "ready", draining: "draining", drained: "ready", unreachable: "unreachable" },
  heartbeat: { ready: "ready", draining: "draining", drained: "drained", unreachable: "ready" },
  // One that is being drained stays so: its drain notices the silence and fails.
  silent: { ready: "unreachable" },
  drainAsked: { ready: "draining", draining: "draining", drained: "drained" },
  drained: { draining: "drained", drained: "drained" },
  drainFailed: { draining: "ready", ready: "ready" },
  revoked: {
    ready: "revoked",
    draining: "revoked",
    drained: "revoked",
    unreachable: "revoked",
    revoked: "revoked",
  },
};

/** null: the event means nothing there. */
export const nextStatus = (status: NodeStatus, event: NodeEvent): NodeStatus | null =>
  TRANSITIONS[event][status] ?? null;

/** The statuses that an event may meet, and in the same order what they become. */
export function movesOf(event: NodeEvent): {
  readonly from: readonly NodeStatus[];
  readonly to: readonly NodeStatus[];
} {
  const from = NODE_STATUSES.filter((status) => nextStatus(status, event) !== null);
  return { from, to: from.map((status) => nextStatus(status, event) ?? status) };
}
