/**
 * Chooses what to remove from the disk: images, and what pulls have left. Pure.
 */

export interface Candidate {
  /** null: it is of no image. */
  readonly digest: string | null;
  readonly sizeBytes: number;
  /** Epoch milliseconds. */
  readonly lastUsedAt: number;
}

/**
 * What was used within this time stays: a machine that is being created uses its image before its disk refers
 * to it.
 */
const RECENT_MS = 2 * 60 * 1000;

/** What to remove, least recently used first, until `bytesToFree` are freed or nothing unused is left. */
export function planCollection<T extends Candidate>(
  candidates: readonly T[],
  {
    inUse,
    bytesToFree,
    now,
  }: { readonly inUse: ReadonlySet<string>; readonly bytesToFree: number; readonly now: number },
): readonly T[] {
  const unused = candidates
    .filter(({ digest, lastUsedAt }) => (digest === null || !inUse.has(digest)) && now - lastUsedAt >= RECENT_MS)
    .toSorted((a, b) => a.lastUsedAt - b.lastUsedAt);
  const chosen: T[] = [];
  let freed = 0;
  for (const candidate of unused) {
    if (freed >= bytesToFree) break;
    chosen.push(candidate);
    freed += candidate.sizeBytes;
  }
  return chosen;
}
