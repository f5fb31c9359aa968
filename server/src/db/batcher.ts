/**
 * One statement for several callers: those that come while statements are under way, or shortly after the
 * last one began, share the next.
 *
 * Always:
 * - At most `statementsMax` are under way that others may wait for, each with at most `itemsMax` items.
 * - A statement begins at the end of the turn of the event loop in which its first caller came, with all that
 *   came in that turn, and at least `gatherMs` after the one before. So it begins after each of its calls.
 * - A statement that writes has each key once, and writes of one key begin in the order in which they came.
 * - A caller fails only for what is its own: what fails is done again, each item alone, except when the
 *   database is unavailable.
 */
import { type Clock, endOfTurn } from "@flotilla/base/clock";
import { DatabaseUnavailable } from "./database.ts";
import { forAll } from "./holder.ts";

export interface BatcherOptions<Item, Result> {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  /** The results by key; undefined in it: none. */
  readonly work: (items: readonly Item[], isAlone: boolean) => Promise<ReadonlyMap<string, Result>>;
  readonly keyOf: (item: Item) => string;
  /** Several of one key may share a statement, and need no order. */
  readonly isRead: boolean;
  readonly statementsMax: number;
  readonly itemsMax: number;
  /** Milliseconds. Default: 0. */
  readonly gatherMs?: number;
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly key: string;
  readonly done: PromiseWithResolvers<Result | undefined>;
}

export class Batcher<Item, Result> {
  readonly #options: BatcherOptions<Item, Result>;
  #waiting: Waiting<Item, Result>[] = [];
  /** Keys of the writes under way, and of what is done alone. */
  readonly #keys = new Set<string>();
  #statements = 0;
  #isGathering = false;
  #begunAt = Number.NEGATIVE_INFINITY;

  constructor(options: BatcherOptions<Item, Result>) {
    this.#options = options;
  }

  do(item: Item): Promise<Result | undefined> {
    const done = Promise.withResolvers<Result | undefined>();
    this.#waiting.push({ item, key: this.#options.keyOf(item), done });
    this.#gather();
    return done.promise;
  }

  #gather(): void {
    if (this.#isGathering || this.#waiting.length === 0 || this.#statements >= this.#options.statementsMax) return;
    this.#isGathering = true;
    void forAll(async () => {
      const { clock, gatherMs = 0 } = this.#options;
      const earlyMs = this.#begunAt + gatherMs - clock.monotonic();
      await (earlyMs > 0 ? clock.sleep(earlyMs) : endOfTurn());
      this.#isGathering = false;
      this.#begin();
    });
  }

  #begin(): void {
    const batch = this.#take();
    // Writes that wait have keys that are under way.
    if (batch.length === 0) return;
    this.#begunAt = this.#options.clock.monotonic();
    this.#statements += 1;
    void this.#runBatch(batch).then((failed) => {
      this.#statements -= 1;
      for (const one of batch) if (!failed.includes(one)) this.#keys.delete(one.key);
      for (const one of failed) void this.#runAlone(one);
      this.#gather();
    });
    this.#gather();
  }

  #take(): readonly Waiting<Item, Result>[] {
    const { itemsMax, isRead } = this.#options;
    const batch: Waiting<Item, Result>[] = [];
    const later: Waiting<Item, Result>[] = [];
    for (const one of this.#waiting) {
      const fits = batch.length < itemsMax && !this.#keys.has(one.key);
      (fits ? batch : later).push(one);
      if (fits && !isRead) this.#keys.add(one.key);
    }
    this.#waiting = later;
    return batch;
  }

  /** Returns those that must be done alone. */
  async #runBatch(batch: readonly Waiting<Item, Result>[]): Promise<readonly Waiting<Item, Result>[]> {
    try {
      const items = batch.map(({ item }) => item);
      const results = await this.#options.work(items, false);
      for (const { key, done } of batch) done.resolve(results.get(key));
      return [];
    } catch (error) {
      if (!(error instanceof DatabaseUnavailable)) return batch;
      for (const { done } of batch) done.reject(error);
      return [];
    }
  }

  /** Beside the statements under way: others do not wait for it. */
  async #runAlone({ item, key, done }: Waiting<Item, Result>): Promise<void> {
    try {
      done.resolve((await this.#options.work([item], true)).get(key));
    } catch (error) {
      done.reject(error);
    }
    this.#keys.delete(key);
    this.#gather();
  }
}
