/**
 * Writes the audit log in batches: while one statement runs, the records of all other requests gather for the
 * next. So requests at the same time share one statement and one commit, and chains are appended without
 * waiting in turn.
 *
 * Always:
 * - `record` resolves after the commit of its row; a failed batch rejects all who wait for it.
 * - At most NOTES_MAX records of calls that sent something to a machine are kept without a request that waits
 *   for them; above that, answers wait for the commit. None is dropped.
 * - Of other refused and failed calls as many are kept, of one tenant a quarter of them. More are dropped and
 *   counted in the log. So a caller that is refused repeatedly hides nothing that was sent to a machine, and
 *   no refusal of another tenant. Only the first of a minute's that are alike have a row each (folds.ts).
 *
 * A crash loses the records of the batch under way and of the one that gathers, and the counts of folded
 * calls. No request of these was answered, except those that were only noted.
 */
import type { AuditRecord } from "@flotilla/contract/audit";
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
import type { Alike, AuditSink, SentCall } from "../api/audit-sink.ts";
import { CallFolds } from "./folds.ts";
import { appendAudit, type NewAudit } from "./store.ts";

const NOTES_MAX = 2_000;
const REFUSED_PER_TENANT_MAX = NOTES_MAX / 4;
const BATCH_MAX = 500;
/** Notes wait this long for others. */
const NOTE_MS = 250;
/** A period of folds.ts. */
const FOLD_MS = 60_000;

/** A record that no request waits for. */
interface Note {
  /** null: it was withdrawn. */
  row: { readonly tenantId: string | null; readonly record: AuditRecord } | null;
  /** A batch has it. */
  isTaken: boolean;
}

interface Waiting {
  readonly row: NewAudit;
  readonly done: PromiseWithResolvers<void>;
}

export class AuditRecorder implements AuditSink {
  readonly #context: Context;
  readonly #stopping = new AbortController();
  #waiting: Waiting[] = [];
  #notes: Note[] = [];
  /** How many the batch under way has: they come back if it fails. */
  #notesTaken = 0;
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

  sent(tenantId: string | null, record: AuditRecord): SentCall {
    const note = this.#keep(tenantId, record);
    return {
      withdraw: () => void (note === null || (note.row = null)),
      answered: (answer) => {
        if (note !== null && !note.isTaken) note.row = { tenantId, record: answer };
        else if (this.#keep(tenantId, answer) === null) return this.record(tenantId, answer);
        return undefined;
      },
    };
  }

  note(tenantId: string | null, record: AuditRecord, alike: Alike): void {
    this.#endFoldsLater();
    if (!this.#folds.admit(tenantId, record, alike)) return;
    if (this.#keepRefused(rowOf(tenantId, record))) this.#writeLater();
    else this.#dropped += 1;
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

  /** Writes what is left, as far as the database takes it. */
  async stop(): Promise<void> {
    this.#endFolds();
    this.#stopping.abort();
    while (this.#writing !== null) await this.#writing;
    while (this.#notes.length + this.#refused.length > 0 && (await this.#writeBatch()));
  }

  /** null: there is no room. */
  #keep(tenantId: string | null, record: AuditRecord): Note | null {
    if (this.#notes.length + this.#notesTaken >= NOTES_MAX) return null;
    const note: Note = { row: { tenantId, record }, isTaken: false };
    this.#notes.push(note);
    this.#writeLater();
    return note;
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
    while (this.#waiting.length > 0 || (isWritten && this.#notes.length >= BATCH_MAX));
    if (isWritten && this.#notes.length + this.#refused.length > 0) this.#writeLater();
    // In the same turn as the last look: a record that comes later begins the next one.
    this.#writing = null;
  }

  /** Whether the database took it. */
  async #writeBatch(): Promise<boolean> {
    const { db, log } = this.#context;
    const waiting = this.#waiting.splice(0, BATCH_MAX);
    const notes = this.#takeNotes();
    // However many notes there are: a flood of commands does not keep refusals from being written.
    const refused = this.#takeRefused(BATCH_MAX);
    if (waiting.length + notes.length + refused.length === 0) return true;
    const sent = notes.flatMap(({ row }) => (row === null ? [] : [rowOf(row.tenantId, row.record)]));
    // In the order in which they were answered; texts of instants have one length.
    const noted = [...sent, ...refused].sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
    let isWritten = true;
    try {
      await appendAudit(db, [...noted, ...waiting.map(({ row }) => row)]);
      for (const { done } of waiting) done.resolve();
    } catch (error) {
      isWritten = false;
      for (const { done } of waiting) done.reject(error);
      this.#notes.unshift(...notes);
      for (const row of refused) if (!this.#keepRefused(row)) this.#dropped += 1;
      log.warn({ error }, "the audit log was not written; it is retried with the next record");
    }
    this.#notesTaken = 0;
    if (this.#dropped > 0) log.warn({ dropped: this.#dropped }, "refused calls were not recorded: too many");
    this.#dropped = 0;
    return isWritten;
  }

  #takeNotes(): readonly Note[] {
    const notes = this.#notes.splice(0, BATCH_MAX).filter(({ row }) => row !== null);
    for (const note of notes) note.isTaken = true;
    this.#notesTaken = notes.length;
    return notes;
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
