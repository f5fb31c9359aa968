/**
 * Which node keeps how many VMs of each shared pool, and how many of those that wait are a pool's. Pure.
 *
 * Always:
 * - The shares of a pool sum to its size, if any node has the memory for one of its machines and, of a local image, the image.
 * - They depend on pools and nodes only, not on their order, so all servers compute the same.
 */
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { HeldReserve, ReserveShare } from "@flotilla/contract/link";
import { canonicalReference } from "@flotilla/contract/reference";

export interface PoolSize {
  readonly id: string;
  readonly image: string;
  /** null: the default, like the next one. */
  readonly cpus: number | null;
  readonly memoryMb: number | null;
  readonly targetSize: number;
}

/** A node that keeps prepared VMs and admits new machines. */
export interface KeepingNode {
  readonly id: string;
  readonly totalMemoryMb: number;
  /** Of the pools' local images, which no node fetches, those that it has. */
  readonly localImages: readonly string[];
}

/** The image and size of a prepared VM. */
type ReservedKind = Omit<ReserveShare, "count">;

/** What a node prepares for a pool's machines; the disk is the one that a pool's machine gets. */
export function kindOf({ image, cpus, memoryMb }: Omit<PoolSize, "id" | "targetSize">): ReservedKind {
  return {
    reference: canonicalReference(image),
    cpus: cpus ?? CPUS_DEFAULT,
    memoryMb: memoryMb ?? MEMORY_MB_DEFAULT,
    diskGb: DISK_GB_DEFAULT,
  };
}

const isLocal = ({ reference }: ReservedKind): boolean => reference.startsWith("local/");

/** The local images of pools, by their canonical names. */
export const localImagesOf = (pools: readonly PoolSize[]): readonly string[] =>
  pools.flatMap((pool) => (isLocal(kindOf(pool)) ? [kindOf(pool).reference] : []));

const keyOf = ({ reference, cpus, memoryMb, diskGb }: ReservedKind): string =>
  JSON.stringify([reference, cpus, memoryMb, diskGb]);

/** The shares by node. Pools of the same image and size are one kind on a node. */
export function sharesOf(
  pools: readonly PoolSize[],
  nodes: readonly KeepingNode[],
): ReadonlyMap<string, readonly ReserveShare[]> {
  const shares = new Map<string, Map<string, ReserveShare>>();
  for (const pool of pools.toSorted((a, b) => (a.id < b.id ? -1 : 1))) {
    const kind = kindOf(pool);
    const key = keyOf(kind);
    const able = nodes.filter(
      ({ totalMemoryMb, localImages }) =>
        totalMemoryMb >= kind.memoryMb && (!isLocal(kind) || localImages.includes(kind.reference)),
    );
    for (const [nodeId, count] of divided(pool, able)) {
      if (count === 0) continue;
      const ofNode = shares.get(nodeId) ?? new Map<string, ReserveShare>();
      ofNode.set(key, { ...kind, count: count + (ofNode.get(key)?.count ?? 0) });
      shares.set(nodeId, ofNode);
    }
  }
  return new Map([...shares].map(([nodeId, kinds]) => [nodeId, [...kinds.values()]]));
}

/** A pool's size divided by the memory of nodes: what does not divide goes to the largest remainders, then to any order of ids. */
function divided(
  { id, targetSize }: PoolSize,
  nodes: readonly KeepingNode[],
): readonly (readonly [nodeId: string, count: number])[] {
  const memoryMb = nodes.reduce((sum, { totalMemoryMb }) => sum + totalMemoryMb, 0);
  const parts = nodes.map((node) => {
    const product = targetSize * node.totalMemoryMb;
    return { nodeId: node.id, count: Math.floor(product / memoryMb), rest: product % memoryMb };
  });
  const left = targetSize - parts.reduce((sum, { count }) => sum + count, 0);
  const ordered = parts
    .map((part) => ({ ...part, order: scattered(`${id} ${part.nodeId}`) }))
    .toSorted((a, b) => b.rest - a.rest || a.order - b.order || (a.nodeId < b.nodeId ? -1 : 1));
  return ordered.map(({ nodeId, count }, index) => [nodeId, index < left ? count + 1 : count] as const);
}

/** A number that differs between pools and nodes, so that small pools wait on different nodes (FNV-1a, mixed). */
function scattered(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 0;
}

export interface Idle {
  readonly idleCount: number;
  /** Why fewer wait than the pool's size, as a node says; null: none says. */
  readonly error: string | null;
}

/** What waits for each pool, by its id. `held`: of all nodes. Of pools of one image and size the first ones get it. */
export function idleOf(pools: readonly PoolSize[], held: readonly HeldReserve[]): ReadonlyMap<string, Idle> {
  const found = new Map(held.map((kind) => [keyOf(kind), { waiting: kind.waiting, error: kind.error }]));
  return new Map(
    pools.map((pool) => {
      const of = found.get(keyOf(kindOf(pool)));
      const idleCount = Math.min(of?.waiting ?? 0, pool.targetSize);
      if (of !== undefined) of.waiting -= idleCount;
      return [pool.id, { idleCount, error: of?.error ?? null }];
    }),
  );
}
