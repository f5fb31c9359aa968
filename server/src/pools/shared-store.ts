/**
 * Every SQL statement for shared_pools, and what nodes report of them.
 */
import { SHARED_POOLS_MAX } from "@flotilla/contract/limits";
import type { HeldReserve } from "@flotilla/contract/link";
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { LABEL } from "./make.ts";
import type { KeepingNode } from "./shares.ts";

export interface SharedPool {
  readonly id: string;
  readonly createdBy: string;
  readonly image: string;
  /** null: the default, like the next one. */
  readonly cpus: number | null;
  readonly memoryMb: number | null;
  readonly hasNetwork: boolean;
  readonly targetSize: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

const COLUMNS = sql`
  p.id, p.created_by AS "createdBy", p.image, p.cpus, p.memory_mb AS "memoryMb", p.has_network AS "hasNetwork",
  p.target_size AS "targetSize", floor(extract(epoch FROM p.created_at) * 1000)::bigint AS "createdAt"`;

/** Oldest first. */
export const listSharedPools = (db: Queryable): Promise<readonly SharedPool[]> =>
  db.query<SharedPool>(sql`SELECT ${COLUMNS} FROM shared_pools p ORDER BY p.created_at, p.id`);

export const findSharedPool = (db: Queryable, id: string): Promise<SharedPool | undefined> =>
  db.queryOne<SharedPool>(sql`SELECT ${COLUMNS} FROM shared_pools p WHERE p.id = ${id}`);

/** A known id was inserted by the first run of the same request. */
export function insertSharedPool(db: Database, pool: SharedPool): Promise<"inserted" | "too_many"> {
  return db.transaction(async (transaction) => {
    // They are made one at a time, so that the count holds.
    await transaction.execute(sql`SELECT pg_advisory_xact_lock(hashtext('shared pools'))`);
    await transaction.execute(sql`
      INSERT INTO shared_pools (id, created_by, image, cpus, memory_mb, has_network, target_size, created_at)
      SELECT ${pool.id}, ${pool.createdBy}, ${pool.image}, ${pool.cpus}::integer, ${pool.memoryMb}::integer,
        ${pool.hasNetwork}::boolean, ${pool.targetSize}::integer, ${instantOf(pool.createdAt)}::timestamptz
      WHERE (SELECT count(*) FROM shared_pools) < ${SHARED_POOLS_MAX}
      ON CONFLICT DO NOTHING`);
    return (await findSharedPool(transaction, pool.id)) === undefined ? "too_many" : "inserted";
  });
}

/** Whether there was such a pool. */
export const deleteSharedPool = async (db: Queryable, id: string): Promise<boolean> =>
  (await db.execute(sql`DELETE FROM shared_pools WHERE id = ${id}`)) > 0;

/** How many machines of a tenant carry the label of each pool; of none: no row. */
export const countClaimed = (
  db: Queryable,
  tenantId: string,
  poolIds: readonly string[],
): Promise<readonly { readonly poolId: string; readonly count: number }[]> =>
  db.query(sql`
    SELECT m.labels ->> ${LABEL} AS "poolId", count(*)::int AS count FROM machines m
    WHERE m.tenant_id = ${tenantId} AND m.deleted_at IS NULL AND m.labels ->> ${LABEL} = ANY(${[...poolIds]}::text[])
    GROUP BY 1`);

/** From `n`, a row of nodes: it keeps prepared VMs, and new machines are placed there. */
const KEEPS = sql`n.status = 'ready' AND n.cordoned_at IS NULL AND n.reserve IS NOT NULL`;

/** The nodes that keep a reserve, with those of the local images that each has. */
export const listKeepingNodes = (db: Queryable, localImages: readonly string[]): Promise<readonly KeepingNode[]> =>
  db.query<KeepingNode>(sql`
    SELECT n.id, n.total_memory_mb AS "totalMemoryMb", ARRAY(
      SELECT i.reference FROM node_images i WHERE i.node_id = n.id AND i.reference = ANY(${[...localImages]}::text[])) AS "localImages"
    FROM nodes n WHERE ${KEEPS}`);

/** What waits on all nodes, and of each kind one node's error. */
export const sumHeld = (db: Queryable): Promise<readonly HeldReserve[]> =>
  db.query<HeldReserve>(sql`
    SELECT r.reference, r.cpus, r."memoryMb", r."diskGb", sum(r.waiting)::int AS waiting,
      min('node ' || n.id || ': ' || r.error) AS error
    FROM nodes n CROSS JOIN LATERAL jsonb_to_recordset(n.reserve)
      AS r(reference text, cpus integer, "memoryMb" integer, "diskGb" integer, waiting integer, error text)
    WHERE ${KEEPS} GROUP BY r.reference, r.cpus, r."memoryMb", r."diskGb"`);
