/**
 * The choice for a burst of machines: `place` of place.ts, with the scores of nodes kept between choices, and
 * with nodes passed over that other starts are locking.
 *
 * Pure: facts of nodes and of the machine → a node.
 *
 * Always: kept scores change no choice. A node's facts are one immutable object; a node with another object
 * is scored again.
 */
import {
  type CandidateNode,
  type Overcommit,
  place,
  type Placement,
  type PlacementRequest,
  scoreOf,
  sumOf,
  total,
} from "./place.ts";

/**
 * A node is passed over for another whose score, but for packing, is worse by this at most: less than the
 * cost of an image.
 */
const DETOUR_COST = 0.1;

/**
 * As `place`, but nodes of `contended` are passed over if another does almost as well. Starts on one node are
 * written one after the other, each waiting for a commit, and packing would choose the same node for all of a
 * burst.
 */
export function placeBeside(
  nodes: readonly CandidateNode[],
  request: PlacementRequest,
  { overcommit, contended, scores = new Scores(request, overcommit) }: Beside,
): Placement {
  if ((request.memoryFormat ?? null) !== null) return place(nodes, request, overcommit);
  const best = scores.best(nodes);
  if (best === null) return place(nodes, request, overcommit);
  if (!contended.has(best.id)) return { nodeId: best.id };
  const other = scores.best(nodes, contended);
  if (other === null) return { nodeId: best.id };
  const costOf = (node: CandidateNode): number => {
    const score = scoreOf({ node, request, overcommit });
    return total(score) - score.packing;
  };
  return { nodeId: costOf(other) <= costOf(best) + DETOUR_COST ? other.id : best.id };
}

interface Beside {
  readonly overcommit: Overcommit;
  readonly contended: Pick<ReadonlySet<string>, "has">;
  /** Scores for the same request and ceilings, kept from earlier choices. */
  readonly scores?: Scores;
}

/**
 * The scores of nodes for machines with the same needs, kept between choices: a node is scored again when its
 * facts are another object. A burst asks the same of a thousand nodes for each machine, and each placement
 * changes one of them.
 */
export class Scores {
  readonly request: PlacementRequest;
  readonly #overcommit: Overcommit;
  readonly #scored: (CandidateNode | undefined)[] = [];
  /** Infinity: a filter excludes the node. */
  readonly #sums: number[] = [];

  constructor(request: PlacementRequest, overcommit: Overcommit) {
    this.request = request;
    this.#overcommit = overcommit;
  }

  /** Whether these are the scores for that request too. */
  areFor(request: PlacementRequest): boolean {
    const { holders, nodeLabels, ...needs } = request;
    const { holders: ownHolders, nodeLabels: ownLabels, ...own } = this.request;
    return (
      needs.cpus === own.cpus &&
      needs.memoryMb === own.memoryMb &&
      needs.arch === own.arch &&
      (needs.diskBytes ?? 0) === (own.diskBytes ?? 0) &&
      (needs.memoryFormat ?? null) === (own.memoryFormat ?? null) &&
      holders?.ids === ownHolders?.ids &&
      holders?.isRequired === ownHolders?.isRequired &&
      needs.siblings === own.siblings &&
      JSON.stringify(nodeLabels) === JSON.stringify(ownLabels)
    );
  }

  /**
   * The node with the lowest score that is not passed over; null: none fits. Reasons are not made: a fleet
   * has many nodes.
   */
  best(nodes: readonly CandidateNode[], passedOver?: Pick<ReadonlySet<string>, "has">): CandidateNode | null {
    let best: CandidateNode | null = null;
    let lowest = Number.POSITIVE_INFINITY;
    for (let at = 0; at < nodes.length; at += 1) {
      const node = nodes[at];
      if (node === undefined) continue;
      const sum = this.#scored[at] === node ? (this.#sums[at] ?? lowest) : this.#score(node, at);
      if (sum > lowest || sum === Number.POSITIVE_INFINITY) continue;
      if (sum === lowest && best !== null && node.id > best.id) continue;
      if (passedOver?.has(node.id) === true) continue;
      best = node;
      lowest = sum;
    }
    return best;
  }

  #score(node: CandidateNode, at: number): number {
    const of = { node, request: this.request, overcommit: this.#overcommit };
    const sum = sumOf(of) ?? Number.POSITIVE_INFINITY;
    this.#scored[at] = node;
    this.#sums[at] = sum;
    return sum;
  }
}
