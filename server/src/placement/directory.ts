/**
 * The candidate nodes for placement, cached for a moment, so that a burst of starts reads them once.
 *
 * Always:
 * - Placements since the last read are counted, so that a burst is spread over nodes.
 * - The cache is never older than FRESH_MS.
 *
 * Two servers may place on the same node at the same time. The statement that writes the start decides
 * (`node_admits_start`); who loses calls `forget` and chooses again.
 */
import type { Context } from "../context.ts";
import {
  type CandidateNode,
  explain,
  type Explanation,
  type LeavingMachine,
  NO_OTHER_NODE,
  type Overcommit,
  type Placement,
  type PlacementRequest,
  place,
  placeAll,
  promise,
  startRefusal,
} from "./place.ts";
import { type ImageHolder, type ImageQuery, listCandidates, listImageHolders } from "./store.ts";

const FRESH_MS = 1_000;

export class NodeDirectory {
  readonly #context: Context;
  /** The ceilings of every node. */
  readonly overcommit: Overcommit;
  #reading: Promise<readonly CandidateNode[]> | null = null;
  #nodes: CandidateNode[] = [];
  #readAt = Number.NEGATIVE_INFINITY;

  readonly #unlisten: () => void;

  constructor(context: Context, overcommit: Overcommit) {
    this.#context = context;
    this.overcommit = overcommit;
    const forget = () => this.forget();
    this.#unlisten = context.db.listen("nodes", { onPayload: forget, onGap: forget });
  }

  close(): void {
    this.#unlisten();
  }

  /** The next placement reads the nodes again. */
  forget(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  /** Chooses a node for a machine that has none. */
  async place(request: PlacementRequest): Promise<Placement> {
    await this.#refresh();
    const placement = place(this.#nodes, request, this.overcommit);
    if (placement.nodeId === null) {
      // A refusal must not be based on an outdated cache.
      await this.#read();
      return this.#note(place(this.#nodes, request, this.overcommit), request);
    }
    return this.#note(placement, request);
  }

  /** What `place` would do now, with every step. `activeOn`: the node on which the machine itself is active now. */
  async explain(request: PlacementRequest, activeOn: string | null): Promise<Explanation> {
    const nodes = await listCandidates(this.#context.db);
    const withoutIt = nodes.map((node) => (node.id === activeOn ? promise(node, request, -1) : node));
    return explain(withoutIt, request, this.overcommit);
  }

  /** Whether there is a choice between nodes. */
  async hasSeveral(): Promise<boolean> {
    await this.#refresh();
    return this.#nodes.length > 1;
  }

  /**
   * Chooses the node for a machine that leaves `fromId`. `toId`: it must be this one; null: any. The reason of a refusal does not
   * speak of the node that it leaves.
   */
  async placeElsewhere(
    request: PlacementRequest,
    { fromId, toId }: { readonly fromId: string; readonly toId: string | null },
  ): Promise<Placement> {
    await this.#read();
    const others = this.#nodes.filter(({ id }) => (toId === null ? id !== fromId : id === toId));
    if (others.length === 0)
      return toId === null ? NO_OTHER_NODE : { nodeId: null, canNever: true, reason: `node ${toId} was not found` };
    return this.#note(place(others, request, this.overcommit), request);
  }

  /** What `placeElsewhere` would choose for all machines of a node that leave it one after the other. Reserves nothing. */
  async planElsewhere(fromId: string, machines: readonly LeavingMachine[]): Promise<readonly Placement[]> {
    const nodes = await listCandidates(this.#context.db);
    return placeAll(nodes, machines, { fromId, overcommit: this.overcommit });
  }

  /** A node as it was read last, at most FRESH_MS ago; undefined when it does not exist. */
  async find(nodeId: string): Promise<CandidateNode | undefined> {
    await this.#refresh();
    return this.#nodes.find(({ id }) => id === nodeId);
  }

  /** The nodes that accept machines, and whether each has an image. */
  withImage(query: ImageQuery): Promise<readonly ImageHolder[]> {
    return listImageHolders(this.#context.db, query);
  }

  /** Why a machine cannot be started on the node that has its disk; null when it can. */
  async startRefusal(nodeId: string, request: PlacementRequest): Promise<string | null> {
    await this.#refresh();
    const refusal = (): string | null => {
      const node = this.#nodes.find(({ id }) => id === nodeId);
      return node === undefined ? null : startRefusal({ node, request, overcommit: this.overcommit });
    };
    if (refusal() === null) return null;
    await this.#read();
    return refusal();
  }

  #note(placement: Placement, request: PlacementRequest): Placement {
    this.#nodes = this.#nodes.map((node) => (node.id === placement.nodeId ? promise(node, request, 1) : node));
    return placement;
  }

  async #refresh(): Promise<void> {
    if (this.#context.clock.monotonic() - this.#readAt > FRESH_MS) await this.#read();
  }

  async #read(): Promise<void> {
    this.#reading ??= listCandidates(this.#context.db).finally(() => {
      this.#reading = null;
    });
    this.#nodes = [...(await this.#reading)];
    this.#readAt = this.#context.clock.monotonic();
  }
}
