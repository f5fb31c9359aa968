/**
 * Writes the audit log in batches: while one statement runs, the records of all other requests gather for the
 * next. So requests at the same time share one statement and one commit, and chains are appended without
 * waiting in turn.
 *
 * Always:
 * - `record` resolves after the commit of its row; a failed batch rejects all who wait for it.
 * - Records that no request waits for are kept for the next batch when one fails: of calls that succeeded at
 *   most NOTES_MAX, and as many of refused and failed ones, of one tenant a quarter of them. More are dropped
 *   and counted in the log. So a caller that is refused repeatedly hides no call that succeeded, and no
 *   refusal of another tenant.
 * - Only the first of a minute's refused or failed calls that are alike have a row each (folds.ts).
 *
 * A crash loses the records of the batch under way and of the one that gathers, and the counts of folded
 * calls. No request of these was answered, except those that were only noted.
 */
import type { AuditRecord } from "@flotilla/contract/audit";
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
import type { AuditSink } from "../api/audit-sink.ts";
import { CallFolds } from "./folds.ts";
import { appendAudit, type NewAudit } from "./store.ts";

const NOTES_MAX = 2_000;
const REFUSED_PER_TENANT_MAX = NOTES_MAX / 4;
const BATCH_MAX = 500;
/** Notes wait this long for others. */
const NOTE_MS = 250;
/** A period of folds.ts. */
const FOLD_MS = 60_000;

interface Waiting {
  readonly row: NewAudit;
  readonly done: PromiseWithResolvers<void>;
}

export class AuditRecorder implements AuditSink {
  readonly #context: Context;
  readonly #stopping = new AbortController();
  #waiting: Waiting[] = [];
  #notes: NewAudit[] = [];
  #refused: NewAudit[] = [];
  /** How many of `#refused` each tenant has. */
  readonly #refusedOf = new Map<string | null, number>();
  readonly #folds = new CallFolds();
  #isFolding = false;
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
    const isRefused = record.status >= 400;
    if (isRefused) this.#endFoldsLater();
    if (isRefused && !this.#folds.admit(tenantId, record)) return;
    const row = rowOf(tenantId, record);
    if (!(isRefused ? this.#keepRefused(row) : this.#keep(row))) {
      this.#dropped += 1;
      return;
    }
    this.#writeLater();
  }

  #endFoldsLater(): void {
    if (this.#isFolding) return;
    this.#isFolding = true;
    const { clock } = this.#context;
    void clock.sleep(FOLD_MS, this.#stopping.signal).then(() => this.#endFolds());
  }

  #endFolds(): void {
    this.#isFolding = false;
    const folded = this.#folds.end(new Date(this.#context.clock.now()).toISOString());
    for (const { tenantId, record } of folded)
      if (!this.#keepRefused(rowOf(tenantId, record))) this.#dropped += record.calls ?? 1;
    if (folded.length > 0) this.#writeLater();
  }

  #writeLater(): void {
    if (this.#isTimed) return;
    this.#isTimed = true;
    void this.#context.clock.sleep(NOTE_MS, this.#stopping.signal).then(() => {
      this.#isTimed = false;
      this.#write();
    });
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    this.#endFolds();
    this.#stopping.abort();
    while (this.#writing !== null) await this.#writing;
    if (this.#notes.length + this.#refused.length > 0) await this.#writeBatch();
  }

  /** Whether there was room. */
  #keep(row: NewAudit): boolean {
    if (this.#notes.length >= NOTES_MAX) return false;
    this.#notes.push(row);
    return true;
  }

  #keepRefused(row: NewAudit): boolean {
    const count = this.#refusedOf.get(row.tenantId) ?? 0;
    if (count >= REFUSED_PER_TENANT_MAX || this.#refused.length >= NOTES_MAX) return false;
    this.#refused.push(row);
    this.#refusedOf.set(row.tenantId, count + 1);
    return true;
  }

  /** Takes the oldest refused calls. */
  #takeRefused(count: number): NewAudit[] {
    const taken = this.#refused.splice(0, count);
    for (const { tenantId } of taken) {
      const left = (this.#refusedOf.get(tenantId) ?? 1) - 1;
      if (left > 0) this.#refusedOf.set(tenantId, left);
      else this.#refusedOf.delete(tenantId);
    }
    return taken;
  }

  #write(): void {
    this.#writing ??= forAll(() => this.#writeAll());
  }

  async #writeAll(): Promise<void> {
    let isWritten = false;
    do isWritten = await this.#writeBatch();
    while (this.#waiting.length > 0);
    if (isWritten && this.#notes.length + this.#refused.length > 0) this.#writeLater();
    // In the same turn as the last look: a record that comes later begins the next one.
    this.#writing = null;
  }

  /** Whether the database took it. */
  async #writeBatch(): Promise<boolean> {
    const { db, log } = this.#context;
    const waiting = this.#waiting.splice(0, BATCH_MAX);
    const notes = this.#notes.splice(0, BATCH_MAX);
    const refused = this.#takeRefused(BATCH_MAX - notes.length);
    if (waiting.length + notes.length + refused.length === 0) return true;
    // In the order in which they were answered; texts of instants have one length.
    const noted = [...notes, ...refused].sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
    let isWritten = true;
    try {
      await appendAudit(db, [...noted, ...waiting.map(({ row }) => row)]);
      for (const { done } of waiting) done.resolve();
    } catch (error) {
      isWritten = false;
      for (const { done } of waiting) done.reject(error);
      this.#notes.unshift(...notes.slice(0, NOTES_MAX - this.#notes.length));
      for (const row of refused) if (!this.#keepRefused(row)) this.#dropped += 1;
      log.warn({ error }, "the audit log was not written; it is retried with the next record");
    }
    if (this.#dropped > 0)
      log.warn({ dropped: this.#dropped }, "refused calls and commands were not recorded: too many");
    this.#dropped = 0;
    return isWritten;
  }
}

const rowOf = (tenantId: string | null, record: AuditRecord): NewAudit => ({
  tenantId,
  at: record.at,
  keyId: record.keyId,
  resource: record.resource,
  type: record.type,
  record: JSON.stringify(record),
});
