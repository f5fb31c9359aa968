/**
 * Runs the server's loops: what wakes them, how often they run, and what they report.
 *
 * Always:
 * - One activation of a loop at a time in this process. Other servers run the same loops, and every effect of an
 *   activation is claimed or fenced in the database.
 * - A failed activation is logged and followed by the next one, never retried inside.
 * - `stop` lets the running activation end.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Context } from "../context.ts";
import type { Channel } from "../db/database.ts";

/** What an activation did. Errors of single items are collected here, not thrown. */
export interface Report {
  readonly errors: readonly string[];
  /** Counts of items found and actions done, by name. */
  readonly counts: Readonly<Record<string, number>>;
  /** A limit was reached: the loop runs again immediately. */
  readonly hasMore?: boolean;
  /** It repaired what another process should have finished. */
  readonly isRepair?: boolean;
}

export interface Reconciler {
  readonly name: string;
  /** Shown in reconcilers/README.md. */
  readonly purpose: string;
  readonly periodMs: number;
  /** Channels whose notifications wake it; their payloads are not read. */
  readonly wakeOn: readonly Channel[];
  /** observe → plan → apply → report. It does not depend on what woke it. */
  activate(signal: AbortSignal): Promise<Report>;
}

/** The minimum pause between two activations of a loop that is woken by every change. */
const PAUSE_MS = 50;

export class Loops {
  readonly #context: Context;
  readonly #reconcilers: readonly Reconciler[];
  readonly #stopping = new AbortController();
  #wakes = new Map<string, AbortController>();
  #unlisten: (() => void)[] = [];
  #running: Promise<unknown> | null = null;

  constructor(context: Context, reconcilers: readonly Reconciler[]) {
    this.#context = context;
    this.#reconcilers = reconcilers;
  }

  start(): void {
    for (const { name, wakeOn } of this.#reconcilers) {
      const wake = () => this.wake(name);
      for (const channel of wakeOn)
        this.#unlisten.push(this.#context.db.listen(channel, { onPayload: wake, onGap: wake }));
    }
    this.#running = Promise.all(this.#reconcilers.map((reconciler) => this.#run(reconciler)));
  }

  /** Runs a loop as soon as possible. */
  wake(name: string): void {
    this.#wakes.get(name)?.abort();
  }

  async stop(): Promise<void> {
    for (const unlisten of this.#unlisten) unlisten();
    this.#stopping.abort();
    for (const wake of this.#wakes.values()) wake.abort();
    await this.#running;
  }

  async #run(reconciler: Reconciler): Promise<void> {
    const { clock }: { clock: Clock } = this.#context;
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      const wake = new AbortController();
      this.#wakes.set(reconciler.name, wake);
      const hasMore = await this.#activate(reconciler);
      if (!hasMore) await clock.sleep(reconciler.periodMs, AbortSignal.any([wake.signal, stopping]));
      await clock.sleep(PAUSE_MS, stopping);
    }
  }

  async #activate(reconciler: Reconciler): Promise<boolean> {
    const { log, clock } = this.#context;
    const startedAt = clock.monotonic();
    try {
      const { errors, counts, hasMore = false, isRepair = false } = await reconciler.activate(this.#stopping.signal);
      const durationMs = Math.round(clock.monotonic() - startedAt);
      const fields = { loop: reconciler.name, durationMs, ...counts };
      const isIdle = Object.values(counts).every((count) => count === 0);
      if (errors.length > 0) log.error({ ...fields, errors: errors.slice(0, 10) }, "a loop finished with errors");
      else if (isRepair) log.warn(fields, "a loop repaired something");
      else if (isIdle) log.debug(fields, "a loop found nothing to do");
      else log.info(fields, "a loop did its work");
      return hasMore;
    } catch (error) {
      if (!this.#stopping.signal.aborted) log.error({ loop: reconciler.name, error }, "a loop failed");
      return false;
    }
  }
}
