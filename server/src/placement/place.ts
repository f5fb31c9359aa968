/**
 * Chooses the node on which a machine is started for the first time. Afterwards it stays where its disk is.
 *
 * Pure: facts of nodes and of the machine → a node, or why there is none.
 *
 * Memory and processors are overcommitted: a guest's memory is backed only when it is touched, so a machine of 8 GiB
 * costs what it uses (an idle one some tens of MiB). It refuses requests that can never fit, and nodes that report
 * almost no free resources. Disks are sparse for the same reason.
 */
import { memoryKeptMb } from "@flotilla/contract/limits";
import type { NodeStatus } from "@flotilla/contract/nodes";

export interface CandidateNode {
  readonly id: string;
  /** The address of its agent. */
  readonly address: string;
  readonly status: NodeStatus;
  /** An operator lets no new machine be placed there. */
  readonly isCordoned: boolean;
  /** null: not reported. */
  readonly arch: string | null;
  readonly totalCpus: number;
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  readonly availableDiskGb: number;
  /** Machines there that run or are about to. */
  readonly activeMachines: number;
  readonly activeCpus: number;
  readonly activeMemoryMb: number;
}

export interface PlacementRequest {
  readonly cpus: number;
  readonly memoryMb: number;
  readonly arch: string | null;
  /** The ids of the nodes to choose from; null: all. */
  readonly candidateIds: readonly string[] | null;
}

export type Placement =
  | { readonly nodeId: string }
  | { readonly nodeId: null; readonly canNever: boolean; readonly reason: string };

const AVAILABLE_DISK_GB_MIN = 1;

function isShortOfMemory(node: CandidateNode): boolean {
  return node.totalMemoryMb > 0 && node.availableMemoryMb < memoryKeptMb(node.totalMemoryMb);
}

function memoryLeft(node: CandidateNode): string {
  return `node ${node.id} has ${node.availableMemoryMb} MB of memory left and keeps ${memoryKeptMb(node.totalMemoryMb)} MB free`;
}

interface Rule {
  /** Whether waiting is useless. */
  readonly canNever: boolean;
  test(node: CandidateNode, request: PlacementRequest): boolean;
  why(node: CandidateNode, request: PlacementRequest): string;
}

// The reasons to exclude a node: first match wins.
const RULES: readonly Rule[] = [
  {
    canNever: false,
    test: (node) => node.status !== "ready",
    why: (node) => `node ${node.id} is ${node.status}`,
  },
  {
    canNever: false,
    test: (node) => node.isCordoned,
    why: (node) => `node ${node.id} is cordoned`,
  },
  {
    canNever: false,
    test: (node, request) => request.candidateIds !== null && !request.candidateIds.includes(node.id),
    why: (node) => `node ${node.id} does not have the image`,
  },
  {
    canNever: true,
    test: (node, request) => request.arch !== null && node.arch !== null && request.arch !== node.arch,
    why: (node, request) => `node ${node.id} is ${node.arch}, but ${request.arch} is requested`,
  },
  {
    canNever: true,
    test: (node, request) => node.totalMemoryMb > 0 && request.memoryMb > node.totalMemoryMb,
    why: (node, request) =>
      `node ${node.id} has ${node.totalMemoryMb} MB of memory, but ${request.memoryMb} MB are requested`,
  },
  {
    canNever: false,
    test: isShortOfMemory,
    why: memoryLeft,
  },
  {
    canNever: false,
    test: (node) => node.totalMemoryMb > 0 && node.availableDiskGb < AVAILABLE_DISK_GB_MIN,
    why: (node) => `node ${node.id} has ${node.availableDiskGb} GB of disk left`,
  },
];

/** Why a machine whose disk is on this node cannot be started on it now, and what to do; null when it can. */
export function startRefusal(node: CandidateNode): string | null {
  if (node.status === "draining" || node.status === "drained")
    return `node ${node.id} is ${node.status}, and the machine's disk is there; try again when the node is back`;
  if (!isShortOfMemory(node)) return null;
  return `${memoryLeft(node)}, and the machine's disk is there; stop machines on it that are not needed, or try again later`;
}

/** The share of a node's resources that would be promised; the node with the lowest is the best. */
function promised(node: CandidateNode, request: PlacementRequest): number {
  const cpus = (node.activeCpus + request.cpus) / Math.max(1, node.totalCpus);
  const memory = (node.activeMemoryMb + request.memoryMb) / Math.max(1, node.totalMemoryMb);
  return Math.max(cpus, memory);
}

export function place(nodes: readonly CandidateNode[], request: PlacementRequest): Placement {
  const against = nodes.map((node) => ({ node, rule: RULES.find((rule) => rule.test(node, request)) }));
  const fitting = against.filter(({ rule }) => rule === undefined).map(({ node }) => node);
  const best = fitting.toSorted((a, b) => promised(a, request) - promised(b, request) || (a.id < b.id ? -1 : 1))[0];
  if (best !== undefined) return { nodeId: best.id };
  if (nodes.length === 0) return { nodeId: null, canNever: false, reason: "no node has registered" };
  const reasons = against.map(({ node, rule }) => rule?.why(node, request) ?? "").slice(0, 5);
  return {
    nodeId: null,
    canNever: against.every(({ rule }) => rule?.canNever === true),
    reason: reasons.join("; "),
  };
}
