/**
 * Where records of calls go; audit/ implements it, and assemble.ts passes it to the pipeline.
 */
import type { AuditRecord } from "@flotilla/contract/audit";

export interface AuditSink {
  /**
   * Resolves when the record is in the database. `tenantId`: whose chain; null: of a node, which has no
   * tenant.
   */
  record(tenantId: string | null, record: AuditRecord): Promise<void>;
  /** Records a refused or failed call soon; a crash may lose it. Many that are alike share a row. */
  note(tenantId: string | null, record: AuditRecord, isAlike: Alike): void;
  /** Records soon that something was sent to a machine, unless the call is answered before. */
  sent(tenantId: string | null, record: AuditRecord): SentCall;
}

/** Which calls of a key, with the same type, status and code, are alike: all, or those that name the same. */
export type Alike = "whateverNamed" | "sameNamed";

export interface SentCall {
  /** Its answer is recorded by `record`: there is nothing to write of what was sent, if nothing was written. */
  withdraw(): void;
  /** Records the answer soon. A promise when too many wait: it resolves when the record is in the database. */
  answered(record: AuditRecord): Promise<void> | undefined;
}
