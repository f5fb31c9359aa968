/**
 * Chooses the images to remove from the disk. Pure.
 */

export interface Candidate {
  readonly digest: string;
  readonly sizeBytes: number;
  /** Epoch milliseconds. */
  readonly lastUsedAt: number;
}

/** Images used within this time stay: a machine that is being created uses its image before its disk refers to it. */
const RECENT_MS = 2 * 60 * 1000;

/** The images to remove, least recently used first, until `bytesToFree` are freed or no unused image is left. */
export function planCollection(
  images: readonly Candidate[],
  {
    inUse,
    bytesToFree,
    now,
  }: { readonly inUse: ReadonlySet<string>; readonly bytesToFree: number; readonly now: number },
): readonly Candidate[] {
  const unused = images
    .filter((image) => !inUse.has(image.digest) && now - image.lastUsedAt >= RECENT_MS)
    .toSorted((a, b) => a.lastUsedAt - b.lastUsedAt);
  const chosen: Candidate[] = [];
  let freed = 0;
  for (const image of unused) {
    if (freed >= bytesToFree) break;
    chosen.push(image);
    freed += image.sizeBytes;
  }
  return chosen;
}
