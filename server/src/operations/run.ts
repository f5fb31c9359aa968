/**
 * Runs the operations that this server has claimed: their workers, progress and end.
 *
 * Always:
 * - A server renews the lease of an operation while it runs it. A server that has lost the lease (`stale`)
 *   stops and writes nothing more.
 * - An operation past its deadline has failed, even if its worker hangs: then the lease expires and the next
 *   server to claim the operation ends it.
 * - A canceled operation ends within seconds: its worker is interrupted and what it did is undone. A worker
 *   that returns in spite of it had finished, and the operation has succeeded.
 * - A server that stops, or whose database is unavailable, releases its operations unchanged. It does not
 *   fail them.
 *
 * If the process dies, the lease expires and another server continues: completed steps are not repeated, the
 * running one is. So a worker may do a step twice.
 */
import { LinkedList } from "@flotilla/base/linked-list";
import { Refusal } from "@flotilla/contract/errors";
import type { OperationKind } from "@flotilla/contract/operations";
import type { Context } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import { forHolder } from "../db/holder.ts";
import { type FairSemaphore, tenantCaller } from "../fairness/semaphore.ts";
import type { OperationRecord, OperationWorker, StepResult } from "../family.ts";
import { type ClaimRoom, claimRoom, NO_ROOM, ownerOf } from "./shares.ts";
import { beginStep, endStep, failRunning, findStep, type Steps, setStepMessage } from "./steps.ts";
import { endOperation, releaseOperation, saveProgress, type LeaseToken } from "./store.ts";

/** Longer than usual database outages; shorter than users wait for the work of a dead server. */
export const OPERATION_LEASE_MS = 10_000;
/** Progress is written this often at most, and the lease kept this often at least. */
const SAVE_PERIOD_MS = 1_000;

const LOST = new Error("another server works on the operation");
const STOPPED = new Error("the server stops");
const LATE = new Error("the operation is past its deadline");
const CANCELED = new Error("the operation was canceled");

export class OperationRunner {
  readonly #context: Context;
  readonly #semaphore: FairSemaphore;
  readonly #workers = new Map<OperationKind, OperationWorker>();
  /** With the owner of each. */
  readonly #underWay = new Map<Promise<void>, string>();
  /** Steps that have begun: aborted when the operation is to end. */
  readonly #running = new LinkedList<AbortController>();
  #isStopping = false;

  constructor(context: Context, semaphore: FairSemaphore) {
    this.#context = context;
    this.#semaphore = semaphore;
  }

  /** Called before the first operation is claimed. */
  add(workers: readonly OperationWorker[]): void {
    for (const worker of workers) this.#workers.set(worker.kind, worker);
  }

  /** The kinds that have a worker. */
  get kinds(): readonly OperationKind[] {
    return [...this.#workers.keys()];
  }

  /** What it can claim. */
  get room(): ClaimRoom {
    return this.#isStopping ? NO_ROOM : claimRoom(this.#underWay.values());
  }

  /** Begins to work on an operation that was claimed for this server. */
  take(operation: OperationRecord): void {
    const done = this.#runInTurn(operation).catch((error: unknown) => {
      // Its lease expires, and the next server to claim it continues.
      const fields = { operationId: operation.id, error };
      this.#context.log.warn(fields, "an operation could not be written; it continues when its lease has expired");
    });
    this.#underWay.set(done, ownerOf(operation));
    void done.finally(() => this.#underWay.delete(done));
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    for (const over of this.#running) over.abort(STOPPED);
    await Promise.all(this.#underWay.keys());
  }

  /** Operations share the event loop with the requests of their tenant. */
  async #runInTurn(operation: OperationRecord): Promise<void> {
    const end = await this.#semaphore.begin(tenantCaller(operation.tenantId));
    await forHolder(operation.tenantId, () => this.#run(operation)).finally(end);
  }

  async #run(operation: OperationRecord): Promise<void> {
    const { clock, log } = this.#context;
    const over = new AbortController();
    const record = new Progress(this.#context, operation, {
      onLost: () => over.abort(LOST),
      onCancel: () => over.abort(CANCELED),
    });
    const place = this.#running.append(over);
    if (this.#isStopping) over.abort(STOPPED);
    const { signal } = over;
    const finished = new AbortController();
    const keeping = record.keep(finished.signal);
    const finish = (): void => finished.abort();
    if (signal.aborted) finish();
    else signal.addEventListener("abort", finish, { once: true });
    void clock.sleep(Math.max(0, operation.deadlineAt - clock.now()), finished.signal).then(() => over.abort(LATE));
    let error: unknown = null;
    try {
      if (operation.deadlineAt <= clock.now()) throw LATE;
      const worker = this.#workers.get(operation.kind);
      if (worker === undefined) throw new Error(`no worker for ${operation.kind}`);
      await worker.work({ operation, signal, step: (name, work) => record.step(name, work, signal) });
    } catch (thrown) {
      error = signal.aborted ? signal.reason : thrown;
    } finally {
      place.remove();
      finish();
      await keeping;
    }
    if (error === LOST) return;
    if (error === STOPPED || error instanceof DatabaseUnavailable)
      return await releaseOperation(this.#context, operation);
    const reason = error === null ? null : this.#explain(operation, error);
    if (reason !== null) await this.#workers.get(operation.kind)?.undo?.(operation);
    const errorCode = error instanceof Refusal ? error.code : null;
    await record.end({ error: reason, errorCode, isCanceled: error === CANCELED });
    log.info({ operationId: operation.id, kind: operation.kind, reason }, "an operation has ended");
  }

  #explain(operation: OperationRecord, error: unknown): string {
    const { id, kind, resourceName, resourceId, createdAt, deadlineAt } = operation;
    if (error instanceof Refusal) return error.message;
    if (error === CANCELED) return "it was canceled";
    if (error === LATE) {
      const minutes = Math.max(1, Math.round((deadlineAt - createdAt) / 60_000));
      return `${kind} of ${resourceName ?? resourceId} timed out after ${minutes} min; request it again`;
    }
    this.#context.log.error({ operationId: id, error }, "an operation failed");
    return `the server failed in the middle of ${kind}; its log names the reason under ${id}`;
  }
}

interface Interruptions {
  readonly onLost: () => void;
  readonly onCancel: () => void;
}

/** The steps of an operation under way, and their way into the database: one write after the other. */
class Progress {
  readonly #context: Context;
  readonly #token: LeaseToken;
  readonly #interruptions: Interruptions;
  #steps: Steps;
  #saved: Steps;
  #writing: Promise<void> = Promise.resolve();

  constructor(context: Context, operation: OperationRecord, interruptions: Interruptions) {
    this.#context = context;
    this.#token = { id: operation.id, attempt: operation.attempt };
    this.#interruptions = interruptions;
    this.#steps = operation.steps;
    this.#saved = operation.steps;
  }

  async step(
    name: string,
    work: (say: (message: string) => void) => Promise<string | StepResult>,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock } = this.#context;
    const known = findStep(this.#steps, name);
    if (known?.status === "succeeded") return;
    if (known?.status === "failed") throw new Refusal("unavailable", known.message ?? `${name} failed`);
    signal.throwIfAborted();
    this.#steps = beginStep(this.#steps, name, clock.now());
    await this.#save();
    signal.throwIfAborted();
    try {
      const ended = await work((text) => {
        this.#steps = setStepMessage(this.#steps, name, text);
      });
      const result = typeof ended === "string" ? { message: ended } : ended;
      this.#steps = endStep(this.#steps, name, { status: "succeeded", ...result, now: clock.now() });
    } catch (error) {
      // What was interrupted has not failed: it is run again, or ends with its operation.
      if (signal.aborted || !(error instanceof Refusal)) throw error;
      this.#steps = endStep(this.#steps, name, { status: "failed", message: error.message, now: clock.now() });
      throw error;
    } finally {
      if (!signal.aborted) await this.#save();
    }
  }

  /** Writes what is new and keeps the lease, until the signal is aborted. */
  async keep(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#context;
    for (;;) {
      await clock.sleep(SAVE_PERIOD_MS, signal);
      if (signal.aborted) return;
      // Tried again in a second; if the database stays away, the lease runs out.
      await this.#save().catch((error: unknown) => log.debug({ error }, "progress of an operation was not written"));
    }
  }

  async end(end: Omit<Parameters<typeof endOperation>[2], "steps">): Promise<void> {
    await this.#writing;
    const { error } = end;
    const steps = error === null ? this.#steps : failRunning(this.#steps, error, this.#context.clock.now());
    await endOperation(this.#context, this.#token, { ...end, steps });
  }

  #save(): Promise<void> {
    const written = this.#writing.then(() => this.#write());
    this.#writing = written.catch(() => undefined);
    return written;
  }

  async #write(): Promise<void> {
    const steps = this.#steps;
    const news = steps === this.#saved ? null : steps;
    const outcome = await saveProgress(this.#context, this.#token, { steps: news, leaseMs: OPERATION_LEASE_MS });
    if (outcome === "stale") return this.#interruptions.onLost();
    if (outcome === "cancelRequested") this.#interruptions.onCancel();
    this.#saved = steps;
  }
}
