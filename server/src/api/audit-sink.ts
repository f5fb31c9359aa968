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
  /** Records it soon; a crash may lose it. */
  note(tenantId: string | null, record: AuditRecord): void;
}
