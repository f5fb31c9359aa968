/**
 * Chooses the node on which a machine is started for the first time, or to which it is moved: filters, then
 * scores. Between moves it stays where its disk is.
 *
 * Pure: facts of nodes and of the machine → a node, or why there is none; and the same with every step, for
 * operators.
 *
 * Always: the statement that writes a start repeats the filters that other starts and operators can change
 * meanwhile (`node_admits_start` of the migrations), so that racing servers never exceed a ceiling.
 *
 * Memory and processors are overcommitted: a guest's memory is backed only when it is touched, so a machine
 * of 8 GiB costs what it uses (an idle one some tens of MiB). Without configured ceilings only requests that
 * can never fit, and nodes that report almost no free resources, are refused. Disks are sparse for the same
 * reason.
 */
import type { NodePressure } from "@flotilla/contract/link/link";
import { memoryKeptMb } from "@flotilla/contract/limits";
import type { NodeStatus } from "@flotilla/contract/nodes";
import { PLACEMENT_FILTERS, type PlacementFilter } from "@flotilla/contract/placement";

export interface CandidateNode {
  readonly id: string;
  /** The address of its agent. */
  readonly address: string;
  readonly status: NodeStatus;
  /** An operator lets no new machine be placed there. */
  readonly isCordoned: boolean;
  /** null: not reported. */
  readonly arch: string | null;
  readonly labels: Readonly<Record<string, string>>;
  /** 0: not reported; the same for memory and disk. */
  readonly totalCpus: number;
  /** Busy processors, as a mean over the last seconds. */
  readonly usedCpus: number;
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  readonly availableDiskGb: number;
  /** null: not reported. */
  readonly pressure: NodePressure | null;
  /** Machines there that run or are about to. */
  readonly activeMachines: number;
  readonly activeCpus: number;
  readonly activeMemoryMb: number;
}

export interface PlacementRequest {
  readonly cpus: number;
  readonly memoryMb: number;
  readonly arch: string | null;
  /** The node must have each of them, with the same value. */
  readonly nodeLabels: Readonly<Record<string, string>>;
  /** The nodes that have the image; null: unknown, or all the same. */
  readonly holders: { readonly ids: ReadonlySet<string>; readonly isRequired: boolean } | null;
  /**
   * How many machines that it is kept apart from each node has; absent: none has any. Requests that share the
   * map are kept apart from each other: what chooses a node counts it there.
   */
  readonly siblings?: Map<string, number>;
  /** What a disk that is moved there takes, in bytes; absent: it is made there, and is almost empty. */
  readonly diskBytes?: number;
  /**
   * Format of the memory that moves with the machine: a node that can load it is preferred. null or absent:
   * there is none.
   */
  readonly memoryFormat?: string | null;
}

/** How many times its resources a node promises to active machines; null: without a ceiling. */
export interface Overcommit {
  readonly cpus: number | null;
  readonly memory: number | null;
}

export const NO_CEILINGS: Overcommit = { cpus: null, memory: null };

export type Placement =
  | { readonly nodeId: string }
  | { readonly nodeId: null; readonly canNever: boolean; readonly reason: string };

export const NO_OTHER_NODE = { nodeId: null, canNever: true, reason: "there is no other node" } as const;

/** The parts of a score; the node with the lowest sum is chosen. */
export interface Score {
  /**
   * The share of the node's processors or memory that would be promised, of the ceiling if there is one;
   * whichever is larger.
   */
  readonly promised: number;
  /**
   * 0 up to half of the node's ceiling. Beyond, a fuller node is preferred to an emptier one, so that the
   * rooms that are left are large: they decrease with each small machine that is placed evenly, until no
   * large one fits.
   */
  readonly packing: number;
  /** The share of its processors or memory that is in use now, whichever is larger. */
  readonly busy: number;
  /**
   * The share of the last minute in which some process of the host waited for a processor or for memory, or
   * all for the disk; the largest. It still grows where `busy` is 1.
   */
  readonly pressure: number;
  /** The cost of fetching the image. */
  readonly image: number;
  /** The cost of the machines there that it is kept apart from. */
  readonly siblings: number;
}

/** A node as placement sees it: excluded by a filter, or with its score. */
export type Verdict = { readonly nodeId: string } & (
  | { readonly filter: PlacementFilter; readonly canNever: boolean; readonly reason: string; readonly score: null }
  | { readonly filter: null; readonly score: Score }
);

export interface Explanation {
  readonly placement: Placement;
  /** Best first, then the excluded ones in the order of the filters. */
  readonly verdicts: readonly Verdict[];
  /** How many nodes each filter left, in the order in which they apply. */
  readonly filters: readonly { readonly name: PlacementFilter; readonly left: number }[];
}

/** The label in which a node reports the format of its VMs' memory. */
export const MEMORY_FORMAT_LABEL = "memoryFormat";
const AVAILABLE_DISK_GB_MIN = 1;
/**
 * From this percentage of the last minute on in which all processes of a host waited for memory, it gets no
 * new machine. The mean of a minute neither rises with a single burst nor falls as soon as the host recovers,
 * so a node is not admitted and excluded in turn.
 */
export const MEMORY_WAITS_MAX = 10;
/** Nodes are filled evenly up to this share of their ceilings, and one after the other beyond. */
const EVENLY = 0.5;
/** A node without the image is chosen when it is freer by this share of its resources. */
const IMAGE_COST = 0.25;
/** A node with one sibling more is chosen when it is freer by all of its resources. */
const SIBLING_COST = 1;
/** Max nodes that a refusal names. */
const REASONS_MAX = 5;
const BYTES_PER_GB = 1024 ** 3;

function isShortOfMemory(node: CandidateNode): boolean {
  return node.totalMemoryMb > 0 && node.availableMemoryMb < memoryKeptMb(node.totalMemoryMb);
}

function memoryLeft(node: CandidateNode): string {
  return `node ${node.id} has ${node.availableMemoryMb} MB of memory left and keeps ${memoryKeptMb(node.totalMemoryMb)} MB free`;
}

export interface Case {
  readonly node: CandidateNode;
  readonly request: PlacementRequest;
  readonly overcommit: Overcommit;
}

interface Filter {
  readonly name: PlacementFilter;
  /** Whether waiting is useless where it excludes a node. */
  readonly canNever: boolean | ((of: Case) => boolean);
  excludes(of: Case): boolean;
  why(of: Case): string;
}

/** The name of the first label that the node does not have; undefined: it has all. */
function missingLabel({ node, request: { nodeLabels } }: Case): string | undefined {
  for (const name in nodeLabels) if (node.labels[name] !== nodeLabels[name]) return name;
  return undefined;
}

/** How much of a resource may be promised in all; Infinity: any amount. */
const ceilingOf = (total: number, ratio: number | null): number =>
  total === 0 || ratio === null ? Number.POSITIVE_INFINITY : Math.floor(total * ratio);

const cpuCeiling = ({ node, overcommit }: Case): number => ceilingOf(node.totalCpus, overcommit.cpus);
const memoryCeiling = ({ node, overcommit }: Case): number => ceilingOf(node.totalMemoryMb, overcommit.memory);

const neededDiskGb = ({ diskBytes = 0 }: PlacementRequest): number =>
  AVAILABLE_DISK_GB_MIN + Math.ceil(diskBytes / BYTES_PER_GB);

// In this order; the first that excludes a node gives the reason.
const FILTERS: readonly Filter[] = [
  {
    name: "status",
    canNever: false,
    excludes: ({ node }) => node.status !== "ready",
    why: ({ node }) => `node ${node.id} is ${node.status}`,
  },
  {
    name: "cordon",
    canNever: false,
    excludes: ({ node }) => node.isCordoned,
    why: ({ node }) => `node ${node.id} is cordoned`,
  },
  {
    name: "image",
    canNever: false,
    excludes: ({ node, request: { holders } }) => holders?.isRequired === true && !holders.ids.has(node.id),
    why: ({ node }) => `node ${node.id} does not have the image`,
  },
  {
    name: "architecture",
    canNever: true,
    excludes: ({ node, request }) => request.arch !== null && node.arch !== null && request.arch !== node.arch,
    why: ({ node, request }) => `node ${node.id} is ${node.arch}, but ${request.arch} is requested`,
  },
  {
    name: "labels",
    canNever: true,
    excludes: (of) => missingLabel(of) !== undefined,
    why(of) {
      const name = missingLabel(of) ?? "";
      return `node ${of.node.id} does not have the label ${name}=${of.request.nodeLabels[name]}`;
    },
  },
  {
    name: "size",
    canNever: true,
    excludes: ({ node, request }) => node.totalMemoryMb > 0 && request.memoryMb > node.totalMemoryMb,
    why: ({ node, request }) =>
      `node ${node.id} has ${node.totalMemoryMb} MB of memory, but ${request.memoryMb} MB are requested`,
  },
  {
    name: "processors",
    canNever: (of) => of.request.cpus > cpuCeiling(of),
    excludes: (of) => of.node.activeCpus + of.request.cpus > cpuCeiling(of),
    why: (of) =>
      of.request.cpus > cpuCeiling(of)
        ? `node ${of.node.id} may promise ${cpuCeiling(of)} processors, but ${of.request.cpus} are requested`
        : `node ${of.node.id} has promised ${of.node.activeCpus} of ${cpuCeiling(of)} processors`,
  },
  {
    name: "promisedMemory",
    canNever: (of) => of.request.memoryMb > memoryCeiling(of),
    excludes: (of) => of.node.activeMemoryMb + of.request.memoryMb > memoryCeiling(of),
    why: (of) =>
      of.request.memoryMb > memoryCeiling(of)
        ? `node ${of.node.id} may promise ${memoryCeiling(of)} MB of memory, but ${of.request.memoryMb} MB are requested`
        : `node ${of.node.id} has promised ${of.node.activeMemoryMb} of ${memoryCeiling(of)} MB of memory`,
  },
  {
    name: "memory",
    canNever: false,
    excludes: ({ node }) => isShortOfMemory(node),
    why: ({ node }) => memoryLeft(node),
  },
  {
    name: "pressure",
    canNever: false,
    excludes: ({ node }) => (node.pressure?.memory.full ?? 0) >= MEMORY_WAITS_MAX,
    why: ({ node }) =>
      `node ${node.id} is short of memory: all its processes waited for it for ${Math.round(node.pressure?.memory.full ?? 0)} % of the last minute`,
  },
  {
    name: "disk",
    canNever: false,
    excludes: ({ node, request }) => node.totalMemoryMb > 0 && node.availableDiskGb < neededDiskGb(request),
    why: ({ node, request }) =>
      `node ${node.id} has ${node.availableDiskGb} GB of disk left, and ${neededDiskGb(request)} GB are needed`,
  },
];

/** The filters that apply to a machine whose disk is on the node already. */
const CEILING_FILTERS = FILTERS.filter(({ name }) => name === "processors" || name === "promisedMemory");
/** The same with those in whose place `startRefusal` has its own texts. */
const HOME_FILTERS = FILTERS.filter(
  (each) => each.name === "status" || each.name === "memory" || CEILING_FILTERS.includes(each),
);

/** Why a machine whose disk is on this node cannot be started on it now, and what to do; null when it can. */
export function startRefusal(of: Case): string | null {
  const { node } = of;
  if (node.status === "draining" || node.status === "drained")
    return `node ${node.id} is ${node.status}, and the machine's disk is there; try again when the node is back`;
  const ceiling = CEILING_FILTERS.find((filter) => filter.excludes(of));
  const why = ceiling?.why(of) ?? (isShortOfMemory(node) ? memoryLeft(node) : null);
  if (why === null) return null;
  const advice =
    ceiling !== undefined && canNever(ceiling, of)
      ? "ask the operator to move the machine to a larger node"
      : "stop machines on it that are not needed, or try again later";
  return `${why}, and the machine's disk is there; ${advice}`;
}

export function scoreOf(of: Case): Score {
  const { node, request, overcommit } = of;
  const [cpus, memoryMb] = [node.activeCpus + request.cpus, node.activeMemoryMb + request.memoryMb];
  const cpuShare = cpus / Math.max(1, node.totalCpus * (overcommit.cpus ?? 1));
  const memoryShare = memoryMb / Math.max(1, node.totalMemoryMb * (overcommit.memory ?? 1));
  const ofCeiling = Math.max(cpus / cpuCeiling(of), memoryMb / memoryCeiling(of));
  const usedCpus = node.usedCpus / Math.max(1, node.totalCpus);
  const usedMemory = node.totalMemoryMb === 0 ? 0 : 1 - node.availableMemoryMb / node.totalMemoryMb;
  const hasImage = request.holders?.ids.has(node.id) ?? true;
  return {
    promised: Math.max(cpuShare, memoryShare),
    packing: ofCeiling <= EVENLY ? 0 : 1 + EVENLY - 2 * ofCeiling,
    busy: Math.min(1, Math.max(0, usedCpus, usedMemory)),
    pressure: Math.min(1, waitsOf(node) / 100),
    image: hasImage ? 0 : IMAGE_COST,
    siblings: SIBLING_COST * (request.siblings?.get(node.id) ?? 0),
  };
}

/**
 * In percent. A process that only copies files waits for the disk all the time, so only waits of all
 * processes count.
 */
const waitsOf = ({ pressure }: CandidateNode): number =>
  pressure === null ? 0 : Math.max(pressure.cpu.some, pressure.memory.some, pressure.io.full);

/** The sum that is compared. */
export const total = ({ promised, packing, busy, pressure, image, siblings }: Score): number =>
  promised + packing + busy + pressure + image + siblings;

function isExcluded(of: Case): boolean {
  for (const filter of FILTERS) if (filter.excludes(of)) return true;
  return false;
}

function verdictOf(of: Case, filters: readonly Filter[] = FILTERS): Verdict {
  const { id: nodeId } = of.node;
  const filter = filters.find((each) => each.excludes(of));
  if (filter === undefined) return { nodeId, filter: null, score: scoreOf(of) };
  return { nodeId, filter: filter.name, canNever: canNever(filter, of), reason: filter.why(of), score: null };
}

const canNever = ({ canNever: never }: Filter, of: Case): boolean => (typeof never === "boolean" ? never : never(of));

/** The node for a machine that has none. `explain` says why. */
export function place(
  nodes: readonly CandidateNode[],
  request: PlacementRequest,
  overcommit: Overcommit = NO_CEILINGS,
): Placement {
  const { memoryFormat = null } = request;
  const able = memoryFormat === null ? [] : nodes.filter(({ labels }) => labels[MEMORY_FORMAT_LABEL] === memoryFormat);
  const nodeId = bestOf(able, request, overcommit) ?? bestOf(nodes, request, overcommit);
  return nodeId === null ? chosen(nodes.map((node) => verdictOf({ node, request, overcommit }))) : { nodeId };
}

/** The node with the lowest score; null: none fits. Reasons are not made: a fleet has many nodes. */
function bestOf(nodes: readonly CandidateNode[], request: PlacementRequest, overcommit: Overcommit): string | null {
  let best: { readonly nodeId: string; readonly sum: number } | null = null;
  for (const node of nodes) {
    const sum = sumOf({ node, request, overcommit });
    if (sum === null) continue;
    if (best === null || sum < best.sum || (sum === best.sum && node.id < best.nodeId)) best = { nodeId: node.id, sum };
  }
  return best?.nodeId ?? null;
}

/** What is compared; null: a filter excludes the node. */
export const sumOf = (of: Case): number | null => (isExcluded(of) ? null : total(scoreOf(of)));

/** A machine that leaves its node, as `placeAll` sees it. */
export interface LeavingMachine {
  readonly request: PlacementRequest;
  /** It runs or is about to, so its new node promises it resources. */
  readonly isActive: boolean;
}

/**
 * The nodes for machines that leave a node, one after the other: each is placed as if those before it had
 * moved.
 */
export function placeAll(
  nodes: readonly CandidateNode[],
  machines: readonly LeavingMachine[],
  { fromId, overcommit }: { readonly fromId: string; readonly overcommit: Overcommit },
): readonly Placement[] {
  const others = new Map(nodes.flatMap((node) => (node.id === fromId ? [] : [[node.id, node] as const])));
  return machines.map(({ request, isActive }) => {
    if (others.size === 0) return NO_OTHER_NODE;
    const placement = place([...others.values()], request, overcommit);
    const node = placement.nodeId === null ? undefined : others.get(placement.nodeId);
    if (node === undefined) return placement;
    const left = Math.max(0, node.availableDiskGb - Math.ceil((request.diskBytes ?? 0) / BYTES_PER_GB));
    others.set(node.id, { ...(isActive ? promise(node, request, 1) : node), availableDiskGb: left });
    return placement;
  });
}

/** Equal machines that begin with what is on a node. */
export interface BeginningMachines {
  /** That node. */
  readonly homeId: string;
  readonly count: number;
  readonly overcommit: Overcommit;
}

/**
 * The nodes for machines of one kind, one after the other, each as if those before it ran: `homeId` as long
 * as it has room, and then others. With a `memoryFormat`, these must be able to load it.
 */
export function placeFrom(
  nodes: readonly CandidateNode[],
  request: PlacementRequest,
  { homeId, count, overcommit }: BeginningMachines,
): readonly Placement[] {
  const { memoryFormat = null } = request;
  const left = new Map(nodes.map((node) => [node.id, node]));
  const canBegin = ({ id, labels }: CandidateNode): boolean =>
    id !== homeId && (memoryFormat === null || labels[MEMORY_FORMAT_LABEL] === memoryFormat);
  const placeOne = (): Placement => {
    const home = left.get(homeId);
    const atHome = place(home === undefined ? [] : [home], request, overcommit);
    if (atHome.nodeId !== null || nodes.length < 2) return atHome;
    const others = [...left.values()].filter(canBegin);
    if (others.length === 0) return { ...atHome, reason: `${atHome.reason}; no other node can load the memory` };
    const elsewhere = place(others, request, overcommit);
    return elsewhere.nodeId !== null ? elsewhere : { ...elsewhere, reason: `${atHome.reason}; ${elsewhere.reason}` };
  };
  return Array.from({ length: count }, () => {
    const placement = placeOne();
    const node = placement.nodeId === null ? undefined : left.get(placement.nodeId);
    if (node !== undefined) left.set(node.id, promise(node, request, 1));
    return placement;
  });
}

/** The node with the resources of one more machine promised, or of one less. */
export function promise(node: CandidateNode, request: PlacementRequest, sign: 1 | -1): CandidateNode {
  const { cpus, memoryMb } = request;
  return {
    ...node,
    activeMachines: node.activeMachines + sign,
    activeCpus: node.activeCpus + sign * cpus,
    activeMemoryMb: node.activeMemoryMb + sign * memoryMb,
  };
}

/**
 * The same decision with every step. `homeId`: the node that has the machine's disk; a start there passes
 * fewer filters.
 */
export function explain(
  nodes: readonly CandidateNode[],
  request: PlacementRequest,
  overcommit: Overcommit = NO_CEILINGS,
  homeId: string | null = null,
): Explanation {
  const verdicts = nodes.map((node) =>
    verdictOf({ node, request, overcommit }, node.id === homeId ? HOME_FILTERS : FILTERS),
  );
  const position = ({ filter }: Verdict): number => (filter === null ? -1 : PLACEMENT_FILTERS.indexOf(filter));
  let left = nodes.length;
  return {
    placement: chosen(verdicts),
    verdicts: verdicts.toSorted((a, b) => position(a) - position(b) || better(a, b)),
    filters: FILTERS.map(({ name }) => {
      left -= verdicts.filter(({ filter }) => filter === name).length;
      return { name, left };
    }),
  };
}

function better(a: Verdict, b: Verdict): number {
  const difference = a.score === null || b.score === null ? 0 : total(a.score) - total(b.score);
  return difference || (a.nodeId < b.nodeId ? -1 : 1);
}

function chosen(verdicts: readonly Verdict[]): Placement {
  let best: Verdict | undefined;
  for (const verdict of verdicts)
    if (verdict.score !== null && (best === undefined || better(verdict, best) < 0)) best = verdict;
  if (best !== undefined) return { nodeId: best.nodeId };
  if (verdicts.length === 0) return { nodeId: null, canNever: false, reason: "no node has registered" };
  const reasons = verdicts.slice(0, REASONS_MAX).map((verdict) => (verdict.filter === null ? "" : verdict.reason));
  const others = verdicts.length - reasons.length;
  return {
    nodeId: null,
    canNever: verdicts.every((verdict) => verdict.filter !== null && verdict.canNever),
    reason: reasons.join("; ") + (others > 0 ? `; and ${others} more` : ""),
  };
}
