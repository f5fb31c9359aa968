/**
 * The ancestors and branches of a machine. Deleted machines link others for as long as their rows are kept.
 */
import { type Queryable, sql } from "../db/database.ts";
import type { MachineRecord } from "../machines/record.ts";
import { fromRow, MACHINE_COLUMNS, type MachineRow } from "../machines/store.ts";

/** More generations than a person follows; it bounds the walk. */
const GENERATIONS_MAX = 1_000;
/** The machines that one answer lists. */
const LISTED_MAX = 1_000;

export interface LineageOf {
  /** The oldest ancestor whose row is known. */
  readonly rootId: string;
  /** It and all its branches that are not deleted, oldest first. */
  readonly machines: readonly MachineRecord[];
}

export async function listLineage(db: Queryable, { id, tenantId }: MachineRecord): Promise<LineageOf> {
  const root = await db.queryOne<{ id: string }>(sql`
    WITH RECURSIVE up AS (
      SELECT m.id, m.origin, 0 AS generation FROM machines m WHERE m.id = ${id}
      UNION ALL
      SELECT m.id, m.origin, up.generation + 1 FROM up JOIN machines m ON m.id = up.origin ->> 'machineId'
      WHERE m.tenant_id = ${tenantId} AND up.generation < ${GENERATIONS_MAX})
    SELECT id FROM up ORDER BY generation DESC LIMIT 1`);
  const rootId = root?.id ?? id;
  const rows = await db.query<MachineRow>(sql`
    WITH RECURSIVE down AS (
      SELECT ${rootId}::text AS id, 0 AS generation
      UNION ALL
      SELECT b.id, down.generation + 1 FROM down JOIN machines b ON b.origin ->> 'machineId' = down.id
      WHERE b.origin IS NOT NULL AND b.tenant_id = ${tenantId} AND down.generation < ${GENERATIONS_MAX})
    SELECT ${MACHINE_COLUMNS} FROM down JOIN machines m ON m.id = down.id LEFT JOIN nodes n ON n.id = m.node_id
    WHERE m.deleted_at IS NULL ORDER BY m.created_at, m.id LIMIT ${LISTED_MAX}`);
  return { rootId, machines: rows.map(fromRow) };
}
