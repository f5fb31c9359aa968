/**
 * Runs one piece of work for all callers that request the same key (single flight): fifty machines that need
 * an image start one pull.
 *
 * Always:
 * - at most one piece of work per key runs, including a cancelled one that still cleans up, because both
 *   would write the same files;
 * - a caller that cancels leaves alone; the work is cancelled when its last caller has left;
 * - a caller that joins late gets the latest progress at once.
 */

export interface ShareOptions<P> {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: P) => void) | undefined;
}

interface Entry<T, P> {
  readonly controller: AbortController;
  readonly listeners: Set<(progress: P) => void>;
  promise: Promise<T>;
  waiting: number;
  latest: P | undefined;
}

export class SharedWork<T, P = never> {
  readonly #entries = new Map<string, Entry<T, P>>();

  /** Rejects with the signal's reason when the caller cancels, otherwise as the work does. */
  async run(
    key: string,
    options: ShareOptions<P>,
    start: (signal: AbortSignal, report: (progress: P) => void) => Promise<T>,
  ): Promise<T> {
    for (;;) {
      options.signal?.throwIfAborted();
      const entry = this.#entries.get(key);
      if (entry === undefined) break;
      if (!entry.controller.signal.aborted) return this.#join(entry, options);
      await entry.promise.catch(() => undefined);
    }
    const controller = new AbortController();
    const entry: Entry<T, P> = {
      controller,
      listeners: new Set(),
      promise: Promise.reject(new Error("not started")),
      waiting: 0,
      latest: undefined,
    };
    entry.promise.catch(() => undefined);
    const report = (progress: P): void => {
      entry.latest = progress;
      for (const listener of entry.listeners) listener(progress);
    };
    entry.promise = start(controller.signal, report).finally(() => this.#entries.delete(key));
    this.#entries.set(key, entry);
    return this.#join(entry, options);
  }

  /** Cancels all work and waits until it has cleaned up. */
  async stop(): Promise<void> {
    const entries = [...this.#entries.values()];
    for (const entry of entries) entry.controller.abort(new Error("the node agent shuts down"));
    await Promise.allSettled(entries.map((entry) => entry.promise));
  }

  async #join(entry: Entry<T, P>, { signal, onProgress }: ShareOptions<P>): Promise<T> {
    const left = Promise.withResolvers<never>();
    const leave = (): void => left.reject(signal?.reason);
    signal?.addEventListener("abort", leave, { once: true });
    entry.waiting += 1;
    if (onProgress !== undefined) entry.listeners.add(onProgress);
    if (onProgress !== undefined && entry.latest !== undefined) onProgress(entry.latest);
    try {
      return await Promise.race([entry.promise, left.promise]);
    } finally {
      signal?.removeEventListener("abort", leave);
      if (onProgress !== undefined) entry.listeners.delete(onProgress);
      entry.waiting -= 1;
      if (entry.waiting === 0) entry.controller.abort(new Error("all callers have cancelled"));
    }
  }
}
