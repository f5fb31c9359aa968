/**
 * Every SQL statement for volumes.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface VolumeRecord {
  readonly id: string;
  readonly name: string;
  /** As the request named it; empty: it named none. */
  readonly node: string;
  readonly sizeGb: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

export interface VolumeName {
  readonly tenantId: string;
  readonly id: string;
}

const COLUMNS = sql`
  v.id, v.name, v.node, v.size_gb AS "sizeGb", ms(v.created_at) AS "createdAt"`;

/** Oldest first. */
export const listVolumes = (db: Queryable, tenantId: string): Promise<readonly VolumeRecord[]> =>
  db.query<VolumeRecord>(
    sql`SELECT ${COLUMNS} FROM volumes v WHERE v.tenant_id = ${tenantId} ORDER BY v.created_at, v.id`,
  );

export const findVolume = (db: Queryable, { tenantId, id }: VolumeName): Promise<VolumeRecord | undefined> =>
  db.queryOne<VolumeRecord>(sql`SELECT ${COLUMNS} FROM volumes v WHERE v.id = ${id} AND v.tenant_id = ${tenantId}`);

/** A known id was inserted by the first run of the same request. */
export function insertVolume(
  db: Database,
  { tenantId, ...volume }: VolumeRecord & { readonly tenantId: string },
  max: number,
): Promise<VolumeRecord | "name_taken" | "too_many"> {
  return db.transaction(async (transaction) => {
    // Volumes of a tenant are made one at a time, so that the count holds.
    await transaction.query(sql`SELECT 1 FROM tenants WHERE id = ${tenantId} FOR NO KEY UPDATE`);
    await transaction.execute(sql`
      INSERT INTO volumes (id, tenant_id, name, node, size_gb, created_at)
      SELECT ${volume.id}, ${tenantId}, ${volume.name}, ${volume.node}, ${volume.sizeGb}::bigint,
        ${instantOf(volume.createdAt)}::timestamptz
      WHERE (SELECT count(*) FROM volumes WHERE tenant_id = ${tenantId}) < ${max}
      ON CONFLICT DO NOTHING`);
    const row = await transaction.queryOne<VolumeRecord>(sql`
      SELECT ${COLUMNS} FROM volumes v WHERE v.tenant_id = ${tenantId} AND (v.id = ${volume.id} OR v.name = ${volume.name})
      ORDER BY v.id = ${volume.id} DESC LIMIT 1`);
    if (row === undefined) return "too_many";
    return row.id === volume.id ? row : "name_taken";
  });
}

/** Whether there was such a volume. */
export const removeVolume = async (db: Queryable, { tenantId, id }: VolumeName): Promise<boolean> =>
  (await db.execute(sql`DELETE FROM volumes WHERE id = ${id} AND tenant_id = ${tenantId}`)) > 0;
