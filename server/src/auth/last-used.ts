/**
 * Records when API keys are used, without a write per request.
 *
 * Always: a request only sets an entry in memory; a loop writes them every FLUSH_MS in one statement. A crash
 * loses the last few seconds, which no client relies on.
 */
import type { Context } from "../context.ts";
import { touchKeys } from "./key-store.ts";

const FLUSH_MS = 2_000;

export class LastUsed {
  readonly #context: Context;
  readonly #stopping = new AbortController();
  #used = new Map<string, number>();
  #loop: Promise<void> | null = null;

  constructor(context: Context) {
    this.#context = context;
  }

  /** The first use of each batch counts: FLUSH_MS is as exact as it gets. */
  note(keyId: string): void {
    if (!this.#used.has(keyId)) this.#used.set(keyId, this.#context.clock.now());
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
    await this.#flush();
  }

  async #run(): Promise<void> {
    const signal = this.#stopping.signal;
    while (!signal.aborted) {
      await this.#context.clock.sleep(FLUSH_MS, signal);
      await this.#flush();
    }
  }

  async #flush(): Promise<void> {
    if (this.#used.size === 0) return;
    const used = this.#used;
    this.#used = new Map();
    try {
      await touchKeys(this.#context.db, used);
    } catch (error) {
      this.#context.log.debug({ error }, "the last use of API keys could not be written");
    }
  }
}
