/**
 * The brake: whether the fenced machines of nodes that do not report are replaced. Pure: a list of rules, the
 * first that applies is taken.
 *
 * Replacing is safe in any case, because a fenced VM ends before its node is unreachable. The brake is for
 * events in which it does not help: when much of the fleet is silent at once, the cause is more likely
 * between the servers and the nodes than on the nodes.
 *
 * Always:
 * - A node that is silent for OVERDUE_MS counts as silent, though it is unreachable only later: nodes that
 *   are cut off at the same time become unreachable one after the other, by as much as the period of
 *   heartbeats.
 * - A node whose machines were replaced is not expected any more after LOSS_WINDOW_MS, so that nodes that
 *   fail one by one over days do not apply it.
 */
import { HEARTBEAT_LOST_MS, HEARTBEAT_PERIOD_MS } from "@flotilla/contract/link/link";
import type { NodeStatus } from "@flotilla/contract/nodes";

/** Two heartbeats that did not come, and some delay. */
export const OVERDUE_MS = 2 * HEARTBEAT_PERIOD_MS + 2_000;
export const LOSS_WINDOW_MS = 10 * 60_000;
/** The part of the expected nodes from which on it is applied. */
const PARTS = 3;
/** One node alone is not an event of the fleet, however small that is. */
const SILENT_MIN = 2;

/** Instants are epoch milliseconds. */
export interface JudgedNode {
  readonly id: string;
  readonly status: NodeStatus;
  /** Its last heartbeat, or its registration. */
  readonly seenAt: number;
  readonly isInMaintenance: boolean;
  /** When it was decided that its machines are replaced; null: it was not. */
  readonly lostAt: number | null;
}

export interface Listening {
  readonly now: number;
  /** How long this server could have received the heartbeat of every node. */
  readonly sinceMs: number;
}

export interface Judgement {
  readonly verdict: "replace" | "hold";
  /** A text for operators. */
  readonly reason: string;
  /**
   * Whether this server has listened for long enough to know the fleet. If not, its reason does not replace
   * another server's.
   */
  readonly isInformed: boolean;
  /** Unreachable nodes of which it is not decided yet. */
  readonly nodeIds: readonly string[];
  readonly silent: number;
  readonly expected: number;
}

interface Counts {
  readonly silent: number;
  readonly expected: number;
  readonly isInformed: boolean;
}

interface Rule {
  readonly test: (counts: Counts) => boolean;
  readonly verdict: Judgement["verdict"];
  readonly reason: (counts: Counts) => string;
}

const RULES: readonly Rule[] = [
  {
    test: ({ isInformed }) => !isInformed,
    verdict: "hold",
    reason: () => `a server, or its database, was away until less than ${HEARTBEAT_LOST_MS / 1000} s ago`,
  },
  {
    test: ({ silent, expected }) => silent >= expected,
    verdict: "hold",
    reason: ({ expected }) => (expected === 1 ? "it is the only node" : "no node reports"),
  },
  {
    test: ({ silent, expected }) => silent >= SILENT_MIN && silent * PARTS >= expected,
    verdict: "hold",
    reason: ({ silent, expected }) => `${silent} of ${expected} nodes do not report, which is a third or more`,
  },
  {
    test: () => true,
    verdict: "replace",
    reason: ({ silent, expected }) => `${silent} of ${expected} nodes do not report`,
  },
];

/**
 * Whether a heartbeat of the node is due at any time: not of one that left, was emptied, or is being worked
 * on.
 */
const isExpected = ({ status, isInMaintenance, lostAt }: JudgedNode, now: number): boolean =>
  (status === "ready" || status === "draining" || status === "unreachable") &&
  !isInMaintenance &&
  (lostAt === null || now - lostAt < LOSS_WINDOW_MS);

/** null: there is nothing to decide. */
export function judgeLoss(nodes: readonly JudgedNode[], { now, sinceMs }: Listening): Judgement | null {
  const open = nodes.filter(
    ({ status, lostAt, isInMaintenance }) => status === "unreachable" && lostAt === null && !isInMaintenance,
  );
  if (open.length === 0) return null;
  const expected = nodes.filter((node) => isExpected(node, now));
  const silent = expected.filter(({ seenAt }) => now - seenAt >= OVERDUE_MS);
  const counts = { silent: silent.length, expected: expected.length, isInformed: sinceMs >= HEARTBEAT_LOST_MS };
  const rule = RULES.find(({ test }) => test(counts)) as Rule;
  const { verdict, reason } = rule;
  const nodeIds = open.map(({ id }) => id);
  return { verdict, reason: reason(counts), nodeIds, ...counts };
}
