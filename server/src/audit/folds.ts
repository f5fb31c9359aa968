/**
 * Refused and failed calls of one key that are like each other, folded: a flood of them costs the audit log a
 * few rows a minute.
 *
 * Alike are calls of a key with the same type, status and code. In a period the first ROWS_MAX of them
 * have a row each; the others are counted, and have one row together at its end. What they name is compared
 * where their handlers were called, so that each thing on which they may have had an effect is in a row.
 * Otherwise it is not, because a caller would name something else each time.
 *
 * Pure. Always: of each call either `admit` was true, or it is counted in a row of `end`.
 */
import type { AuditRecord } from "@flotilla/contract/audit";
import type { Alike } from "../api/audit-sink.ts";

const ROWS_MAX = 10;
/** Kinds of calls in a period; calls of further kinds are not folded. */
const KINDS_MAX = 10_000;

export interface FoldedCalls {
  readonly tenantId: string | null;
  readonly record: AuditRecord;
}

interface Fold {
  rows: number;
  calls: number;
  /** The last call that was counted; its resource is null if they named several. */
  last: FoldedCalls | null;
}

export class CallFolds {
  readonly #folds = new Map<string, Fold>();

  /** Whether the call gets a row. Otherwise it was counted. */
  admit(tenantId: string | null, record: AuditRecord, alike: Alike): boolean {
    const { keyId, type, status, errorCode } = record;
    const named = alike === "sameNamed" ? record.resource : null;
    const kind = `${tenantId} ${keyId} ${type} ${status} ${errorCode} ${named}`;
    const fold = this.#folds.get(kind) ?? { rows: 0, calls: 0, last: null };
    if (fold.rows === 0 && this.#folds.size >= KINDS_MAX) return true;
    this.#folds.set(kind, fold);
    if (fold.rows < ROWS_MAX) {
      fold.rows += 1;
      return true;
    }
    fold.calls += 1;
    // null stays: they named several.
    const isSame = fold.last === null || fold.last.record.resource === record.resource;
    fold.last = { tenantId, record: isSame ? record : { ...record, resource: null } };
    return false;
  }

  /** Ends the period at this instant (RFC 3339): the rows for what was counted. */
  end(at: string): readonly FoldedCalls[] {
    const folds = [...this.#folds.values()];
    this.#folds.clear();
    return folds.flatMap(({ calls, last }) =>
      last === null ? [] : [{ ...last, record: { ...last.record, at, calls } }],
    );
  }
}
