/**
 * Work on many items, a few at the same time.
 *
 * Always: what has begun has ended when the promise settles, so nothing runs unobserved.
 */

/**
 * Calls `work` for each item, at most `max` at the same time, and resolves to the results in the order of the
 * items. After an error it begins no further item, and rejects with the first error when those under way have
 * ended.
 */
export async function mapAtMost<T, U>(
  max: number,
  items: readonly T[],
  work: (item: T) => Promise<U>,
): Promise<readonly U[]> {
  const results: U[] = [];
  // The workers share it, so each item is taken once.
  const waiting = items.entries();
  let failure: { readonly error: unknown } | null = null;
  const workThrough = async (): Promise<void> => {
    for (const [at, item] of waiting) {
      if (failure !== null) return;
      try {
        results[at] = await work(item);
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(max, items.length) }, workThrough));
  const failed = failure as { readonly error: unknown } | null;
  if (failed !== null) throw failed.error;
  return results;
}
