/**
 * Writes the audit log in batches: while one statement runs, the records of all other requests gather for the next. So
 * requests at the same time share one statement and one commit, and chains are appended without waiting in turn.
 *
 * Always:
 * - `record` resolves after the commit of its row; a failed batch rejects all who wait for it.
 * - Records that no request waits for are kept for the next batch when one fails, at most NOTES_MAX. More are dropped and
 *   counted in the log.
 *
 * A crash loses the records of the batch under way and of the one that gathers. No request of these was answered,
 * except those that were only noted.
 */
import type { AuditRecord } from "@flotilla/contract/audit";
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
import type { AuditSink } from "../http/audit-sink.ts";
import { appendAudit, type NewAudit } from "./store.ts";

const NOTES_MAX = 2_000;
const BATCH_MAX = 500;
/** Notes wait this long for others. */
const NOTE_MS = 250;

interface Waiting {
  readonly row: NewAudit;
  readonly done: PromiseWithResolvers<void>;
}

export class AuditRecorder implements AuditSink {
  readonly #context: Context;
  readonly #stopping = new AbortController();
  #waiting: Waiting[] = [];
  #notes: NewAudit[] = [];
  #dropped = 0;
  #writing: Promise<void> | null = null;
  #isTimed = false;

  constructor(context: Context) {
    this.#context = context;
  }

  record(tenantId: string | null, record: AuditRecord): Promise<void> {
    const done = Promise.withResolvers<void>();
    this.#waiting.push({ row: rowOf(tenantId, record), done });
    this.#write();
    return done.promise;
  }

  note(tenantId: string | null, record: AuditRecord): void {
    if (this.#notes.length >= NOTES_MAX) {
      this.#dropped += 1;
      return;
    }
    this.#notes.push(rowOf(tenantId, record));
    if (this.#isTimed) return;
    this.#isTimed = true;
    void this.#context.clock.sleep(NOTE_MS, this.#stopping.signal).then(() => {
      this.#isTimed = false;
      this.#write();
    });
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    while (this.#writing !== null) await this.#writing;
    if (this.#notes.length > 0) await this.#writeBatch();
  }

  #write(): void {
    this.#writing ??= forAll(() => this.#writeAll());
  }

  async #writeAll(): Promise<void> {
    do await this.#writeBatch();
    while (this.#waiting.length > 0);
    // In the same turn as the last look: a record that comes later begins the next one.
    this.#writing = null;
  }

  async #writeBatch(): Promise<void> {
    const { db, log } = this.#context;
    const waiting = this.#waiting.splice(0, BATCH_MAX);
    const notes = this.#notes.splice(0, BATCH_MAX);
    if (waiting.length + notes.length === 0) return;
    try {
      await appendAudit(db, [...notes, ...waiting.map(({ row }) => row)]);
      for (const { done } of waiting) done.resolve();
    } catch (error) {
      for (const { done } of waiting) done.reject(error);
      this.#notes.unshift(...notes.slice(0, NOTES_MAX - this.#notes.length));
      log.warn({ error }, "the audit log was not written; it is retried with the next record");
    }
    if (this.#dropped > 0)
      log.warn({ dropped: this.#dropped }, "refused calls and commands were not recorded: too many");
    this.#dropped = 0;
  }
}

const rowOf = (tenantId: string | null, record: AuditRecord): NewAudit => ({
  tenantId,
  at: record.at,
  keyId: record.keyId,
  resource: record.resource,
  record: JSON.stringify(record),
});
