/**
 * The candidate nodes for placement, cached for a moment, so that a burst of starts reads them once.
 *
 * Always:
 * - Placements since the last read are counted, so that a burst is spread over nodes. A node that a start is
 *   locking is passed over if another does almost as well.
 * - The cache is at most FRESH_MS old; where a read takes long, READING_SHARE times as long as it, and at
 *   most FRESH_MS_MAX. A node that has changed since is read again, alone: in a large fleet some always
 *   change.
 *
 * Two servers may place on the same node at the same time. The statement that writes the start decides
 * (`node_admits_start`); the one that loses calls `forgetNode`, or `forget` when it loses again, and chooses
 * again.
 */
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
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
  type BeginningMachines,
  placeAll,
  placeFrom,
  promise,
  startRefusal,
} from "./place.ts";
import { placeBeside, Scores } from "./scores.ts";
import { findCandidates, type ImageQuery, listCandidates, listImageHolders } from "./store.ts";

const FRESH_MS = 1_000;
/** Reading the nodes of a large fleet takes at most one part in this many of the time. */
const READING_SHARE = 10;
/** The longest time between two reads while machines are placed. */
const FRESH_MS_MAX = 5_000;
/** The part of the nodes, of 256, that is preferred after a collision. */
const RANDOM_BELOW = 32;
/** Images whose holders are cached. */
const IMAGES_MAX = 256;
/** Kinds of machines whose scores are kept. */
const SCORES_MAX = 16;

interface ImageReading {
  /** Counts the reads of this server. */
  readonly number: number;
  readonly readAt: number;
  readonly holders: Promise<ReadonlySet<string>>;
}

export class NodeDirectory {
  readonly #context: Context;
  /** The ceilings of every node. */
  readonly overcommit: Overcommit;
  #reading: Promise<void> | null = null;
  #nodes: CandidateNode[] = [];
  #readAt = Number.NEGATIVE_INFINITY;
  #freshMs = FRESH_MS;
  /** Nodes that have changed since they were read. */
  readonly #changed = new Set<string>();
  #readingChanged: Promise<void> | null = null;
  /** How many starts this server is writing, by the nodes that they lock; never 0. */
  readonly #writing = new Map<string, number>();
  readonly #images = new Map<string, ImageReading>();
  #imageReads = 0;
  /** Scores of the kinds of machines that were placed last, the newest first. */
  #scores: Scores[] = [];

  readonly #unlisten: () => void;

  constructor(context: Context, overcommit: Overcommit) {
    this.#context = context;
    this.overcommit = overcommit;
    this.#unlisten = context.db.listen("nodes", {
      onPayload: (nodeId) => this.forgetNode(nodeId),
      onGap: () => this.forget(),
    });
  }

  close(): void {
    this.#unlisten();
  }

  /** The next placement reads all nodes again. */
  forget(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
    this.#images.clear();
  }

  /** The next placement reads the node again. */
  forgetNode(nodeId: string): void {
    this.#changed.add(nodeId);
    this.#images.clear();
  }

  /**
   * Chooses a node for a machine that has none. `isRepeated`: another server was faster on the node that was
   * chosen before. Then a random part of the nodes is preferred, because servers that race for the same best
   * node would collide again.
   */
  async place(request: PlacementRequest, { isRepeated = false } = {}): Promise<Placement> {
    await this.#refresh();
    const some = isRepeated ? place(this.#randomNodes(), request, this.overcommit) : null;
    if (some !== null && some.nodeId !== null) return this.#note(some, request);
    const beside = { overcommit: this.overcommit, contended: this.#writing, scores: this.#scoresFor(request) };
    const placement = placeBeside(this.#nodes, request, beside);
    if (placement.nodeId === null) {
      // A refusal must not be based on an outdated cache.
      await this.#read();
      return this.#note(place(this.#nodes, request, this.overcommit), request);
    }
    return this.#note(placement, request);
  }

  /** The first of these nodes that admits the request; null: none does. Reserves it as `place` does. */
  async placeOn(ids: readonly string[], request: PlacementRequest): Promise<string | null> {
    if (ids.length === 0) return null;
    await this.#refresh();
    for (const id of ids) {
      const placement = place(
        this.#nodes.filter((node) => node.id === id),
        request,
        this.overcommit,
      );
      if (placement.nodeId !== null) return this.#note(placement, request).nodeId;
    }
    return null;
  }

  /**
   * Writes a start on a node. With ceilings this locks the node until the commit: meanwhile `place` prefers
   * other nodes.
   */
  async whileWriting<Result>(nodeId: string, write: () => Promise<Result>): Promise<Result> {
    if (this.overcommit.cpus === null && this.overcommit.memory === null) return await write();
    this.#countWriting(nodeId, 1);
    try {
      return await write();
    } finally {
      this.#countWriting(nodeId, -1);
    }
  }

  #countWriting(nodeId: string, by: 1 | -1): void {
    const count = (this.#writing.get(nodeId) ?? 0) + by;
    if (count === 0) this.#writing.delete(nodeId);
    else this.#writing.set(nodeId, count);
  }

  #scoresFor(request: PlacementRequest): Scores {
    const known = this.#scores.find((scores) => scores.areFor(request)) ?? new Scores(request, this.overcommit);
    if (this.#scores[0] !== known)
      this.#scores = [known, ...this.#scores.filter((scores) => scores !== known)].slice(0, SCORES_MAX);
    return known;
  }

  #randomNodes(): readonly CandidateNode[] {
    const bytes = this.#context.randomBytes(this.#nodes.length);
    return this.#nodes.filter((_, at) => (bytes[at] ?? 0) < RANDOM_BELOW);
  }

  /**
   * What `place` would do now, with every step. `homeId`: the node that has the machine's disk. `promisedOn`:
   * the nodes that have promised the machine itself its resources.
   */
  async explain(
    request: PlacementRequest,
    { homeId, promisedOn }: { readonly homeId: string | null; readonly promisedOn: readonly (string | null)[] },
  ): Promise<Explanation> {
    const nodes = await listCandidates(this.#context.db);
    const withoutIt = nodes.map((node) => (promisedOn.includes(node.id) ? promise(node, request, -1) : node));
    return explain(withoutIt, request, this.overcommit, homeId);
  }

  /** The processors that the nodes have; empty: some node has not said. */
  async architectures(): Promise<ReadonlySet<string>> {
    await this.#refresh();
    const found = this.#nodes.map(({ arch }) => arch);
    return new Set(found.includes(null) ? [] : found.flatMap((arch) => arch ?? []));
  }

  /** Whether there is a choice between nodes. */
  async hasSeveral(): Promise<boolean> {
    await this.#refresh();
    return this.#nodes.length > 1;
  }

  /**
   * Chooses the node for a machine that leaves `fromId`. `toId`: it must be this one; null: any. The reason
   * of a refusal does not speak of the node that it leaves.
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

  /**
   * What `placeElsewhere` would choose for all machines of a node that leave it one after the other. Reserves
   * nothing.
   */
  async planElsewhere(fromId: string, machines: readonly LeavingMachine[]): Promise<readonly Placement[]> {
    const nodes = await listCandidates(this.#context.db);
    return placeAll(nodes, machines, { fromId, overcommit: this.overcommit });
  }

  /** What `placeFrom` says of the nodes as they are. Reserves nothing. */
  async planFrom(
    request: PlacementRequest,
    beginning: Omit<BeginningMachines, "overcommit">,
  ): Promise<readonly Placement[]> {
    await this.#refresh();
    const plan = () => placeFrom(this.#nodes, request, { ...beginning, overcommit: this.overcommit });
    const placements = plan();
    if (placements.every(({ nodeId }) => nodeId === beginning.homeId)) return placements;
    await this.#read();
    return plan();
  }

  /** A node as it was read last, at most FRESH_MS_MAX ago; undefined when it does not exist. */
  async find(nodeId: string): Promise<CandidateNode | undefined> {
    await this.#refresh();
    return this.#nodes.find(({ id }) => id === nodeId);
  }

  /**
   * The ready nodes that have an image. Concurrent callers share a read. An empty answer comes only from a
   * read that began after the call: an image that was just fetched or imported must be found.
   */
  async withImage(query: ImageQuery): Promise<ReadonlySet<string>> {
    const { reference, architecture, tenantId } = query;
    // A local image is every tenant's.
    const key = [reference, architecture, reference.startsWith("local/") ? null : tenantId].join(" ");
    const askedAt = this.#imageReads;
    for (;;) {
      const reading = this.#imageReading(key, query);
      const holders = await reading.holders;
      if (holders.size > 0 || reading.number >= askedAt) return holders;
      if (this.#images.get(key) === reading) this.#images.delete(key);
    }
  }

  #imageReading(key: string, query: ImageQuery): ImageReading {
    const now = this.#context.clock.monotonic();
    const known = this.#images.get(key);
    if (known !== undefined && now - known.readAt <= this.#freshMs) return known;
    const reading = {
      number: this.#imageReads,
      readAt: now,
      holders: forAll(() => listImageHolders(this.#context.db, query)),
    };
    this.#imageReads += 1;
    this.#images.delete(key);
    this.#images.set(key, reading);
    const [oldest] = this.#images.keys();
    if (this.#images.size > IMAGES_MAX && oldest !== undefined) this.#images.delete(oldest);
    reading.holders.catch(() => {
      if (this.#images.get(key) === reading) this.#images.delete(key);
    });
    return reading;
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
    const { siblings } = request;
    if (placement.nodeId !== null) siblings?.set(placement.nodeId, (siblings.get(placement.nodeId) ?? 0) + 1);
    const at = this.#nodes.findIndex(({ id }) => id === placement.nodeId);
    const node = this.#nodes[at];
    if (node !== undefined) this.#nodes[at] = promise(node, request, 1);
    return placement;
  }

  async #refresh(): Promise<void> {
    if (this.#context.clock.monotonic() - this.#readAt > this.#freshMs) return await this.#read();
    // A read that is under way may have begun before the last change: the next one has it.
    for (let reads = 0; reads < 2 && (this.#changed.size > 0 || this.#readingChanged !== null); reads += 1)
      await this.#readChanged();
  }

  /** Starts that wait for the same read see each other's placements: it replaces the nodes once. */
  async #read(): Promise<void> {
    this.#reading ??= forAll(async () => {
      const { db, clock } = this.#context;
      const startedAt = clock.monotonic();
      this.#changed.clear();
      try {
        this.#nodes = [...(await listCandidates(db))];
        this.#readAt = clock.monotonic();
        this.#freshMs = Math.min(FRESH_MS_MAX, Math.max(FRESH_MS, READING_SHARE * (this.#readAt - startedAt)));
      } catch (error) {
        this.forget();
        throw error;
      }
    }).finally(() => {
      this.#reading = null;
    });
    await this.#reading;
  }

  async #readChanged(): Promise<void> {
    this.#readingChanged ??= forAll(async () => {
      const ids = new Set(this.#changed);
      this.#changed.clear();
      try {
        const found = await findCandidates(this.#context.db, [...ids]);
        this.#nodes = [...this.#nodes.filter(({ id }) => !ids.has(id)), ...found];
      } catch (error) {
        this.forget();
        throw error;
      }
    }).finally(() => {
      this.#readingChanged = null;
    });
    await this.#readingChanged;
  }
}
