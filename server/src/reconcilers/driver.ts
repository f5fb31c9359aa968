/**
 * Runs the server's loops: what wakes them, how often they run, and what they report.
 *
 * Always:
 * - One activation of a loop at a time in this process. Other servers run the same loops, and every effect of
 *   an activation is claimed or fenced in the database.
 * - A failed activation is logged and followed by the next one, never retried inside. While the database is
 *   unavailable, that is logged once for all loops, and once when all of them run again.
 * - `stop` lets the running activation end.
 */
import type { Clock } from "@flotilla/base/clock";
import { messageOf, ownMessageOf } from "@flotilla/base/errors";
import type { Context } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import type { Reconciler, Report } from "../family.ts";

/** What a loop has done since this server started. Instants are epoch milliseconds. */
export interface LoopRuns {
  readonly name: string;
  readonly purpose: string;
  readonly periodMs: number;
  /** null: it waits. */
  runningSince: number | null;
  lastEndedAt: number | null;
  lastMs: number | null;
  runs: number;
  /** Runs that failed, and errors of single items. */
  errors: number;
  /** Runs with errors, up to the last one. */
  failures: number;
  lastError: string | null;
  readonly counts: Record<string, number>;
}

/** The minimum pause between two activations of a loop that is woken by every change. */
const PAUSE_MS = 50;

export class Loops {
  readonly #context: Context;
  readonly #reconcilers: Reconciler[] = [];
  readonly #stopping = new AbortController();
  readonly #status = new Map<string, LoopRuns>();
  /** Loops whose last activation found the database unavailable. */
  readonly #waiting = new Set<string>();
  #wakes = new Map<string, AbortController>();
  #unlisten: (() => void)[] = [];
  #running: Promise<unknown> | null = null;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Called before the start. */
  add(reconcilers: readonly Reconciler[]): void {
    this.#reconcilers.push(...reconcilers);
    for (const reconciler of reconcilers) this.#status.set(reconciler.name, notRun(reconciler));
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

  /** What each loop has done, in their order. */
  status(): readonly Readonly<LoopRuns>[] {
    return [...this.#status.values()];
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
    const status = this.#status.get(reconciler.name) ?? notRun(reconciler);
    status.runningSince = clock.now();
    const end = (errors: readonly string[], counts: Report["counts"] = {}): number => {
      const durationMs = Math.round(clock.monotonic() - startedAt);
      count(status, { endedAt: clock.now(), durationMs, errors, counts });
      return durationMs;
    };
    try {
      const { errors, counts, hasMore = false, isRepair = false } = await reconciler.activate(this.#stopping.signal);
      const fields = { loop: reconciler.name, durationMs: end(errors, counts), ...counts };
      const isIdle = Object.values(counts).every((each) => each === 0);
      if (errors.length > 0) log.error({ ...fields, errors: errors.slice(0, 10) }, "a loop finished with errors");
      else if (isRepair) log.warn(fields, "a loop repaired something");
      else if (isIdle) log.debug(fields, "a loop found nothing to do");
      else log.info(fields, "a loop did its work");
      if (this.#waiting.delete(reconciler.name) && this.#waiting.size === 0)
        log.info({ loop: reconciler.name }, "the database answers loops again");
      return hasMore;
    } catch (error) {
      end([messageOf(error)]);
      if (!this.#stopping.signal.aborted) this.#logFailure(reconciler.name, error);
      return false;
    }
  }

  #logFailure(loop: string, error: unknown): void {
    const { log } = this.#context;
    if (!(error instanceof DatabaseUnavailable)) return log.error({ loop, error }, "a loop failed");
    const isFirst = this.#waiting.size === 0;
    this.#waiting.add(loop);
    log[isFirst ? "error" : "debug"]({ loop, reason: ownMessageOf(error) }, "a loop found the database unavailable");
  }
}

const notRun = ({ name, purpose, periodMs }: Reconciler): LoopRuns => ({
  ...{ name, purpose, periodMs },
  ...{ runningSince: null, lastEndedAt: null, lastMs: null, runs: 0, errors: 0, failures: 0, lastError: null },
  counts: {},
});

interface EndedRun {
  readonly endedAt: number;
  readonly durationMs: number;
  readonly errors: readonly string[];
  readonly counts: Report["counts"];
}

function count(status: LoopRuns, { endedAt, durationMs, errors, counts }: EndedRun): void {
  status.runningSince = null;
  status.lastEndedAt = endedAt;
  status.lastMs = durationMs;
  status.runs += 1;
  status.errors += errors.length;
  status.failures = errors.length === 0 ? 0 : status.failures + 1;
  status.lastError = errors[0] ?? status.lastError;
  for (const [name, number] of Object.entries(counts)) status.counts[name] = (status.counts[name] ?? 0) + number;
}
