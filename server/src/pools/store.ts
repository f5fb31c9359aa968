/**
 * Every SQL statement for pools and pool_claims, and for the rows of machine_owners that are of pools.
 *
 * Always: a machine waits in a pool as long as the pool owns it. A claim, a first use and the pool's decision
 * to delete it exclude each other by the lock of its row in machine_owners.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { IS_LOST } from "../machines/fence-store.ts";
import { fromRow, MACHINE_COLUMNS, type MachineRow } from "../machines/store.ts";
import { phaseOf, UNREACHABLE_STATUSES } from "../machines/state.ts";
import type { Member } from "./state.ts";

export interface PoolRecord {
  readonly id: string;
  readonly tenantId: string;
  readonly createdBy: string;
  readonly image: string;
  readonly cpus: number | null;
  readonly memoryMb: number | null;
  readonly hasNetwork: boolean;
  readonly maxIdleSeconds: number | null;
  readonly targetSize: number;
  readonly error: string | null;
  /** In a row. */
  readonly failures: number;
  /** Epoch milliseconds, like the next one. */
  readonly retryAt: number | null;
  readonly createdAt: number;
  readonly isDeleted: boolean;
}

export interface PoolName {
  readonly tenantId: string;
  readonly id: string;
}

/**
 * The row of a claim whose machine was not made within this time is forgotten: the claim was refused, or its
 * server has died. Each later claim reads those that are left. If the machine is made nevertheless, a
 * repetition finds it by its id.
 */
const CLAIMED_UNMADE_MS = 60_000;

const COLUMNS = sql`
  p.id, p.tenant_id AS "tenantId", p.created_by AS "createdBy", p.image, p.cpus, p.memory_mb AS "memoryMb",
  p.has_network AS "hasNetwork", p.max_idle_seconds AS "maxIdleSeconds", p.target_size AS "targetSize", p.error, p.failures,
  ms(p.retry_at) AS "retryAt",
  ms(p.created_at) AS "createdAt", p.deleted_at IS NOT NULL AS "isDeleted"`;

/** Whether `m`, a machine on node `n` with the row `w` of machine_owners, can be claimed. */
const IS_IDLE = sql`
  w.discarded_at IS NULL AND m.deleted_at IS NULL AND m.desired_state = 'running'
  AND m.observed_state = 'running' AND m.observed_generation = m.generation AND m.ready_at IS NOT NULL
  AND m.observed_details ->> 'unresponsiveSince' IS NULL AND m.last_activity_at IS NULL
  AND n.status <> ALL (${[...UNREACHABLE_STATUSES]})`;

export type CountedPool = PoolRecord & { readonly idleCount: number; readonly busyCount: number };

/** Oldest first. */
export const listPools = (db: Queryable, tenantId: string): Promise<readonly CountedPool[]> =>
  db.query<CountedPool>(sql`
    SELECT ${COLUMNS}, i.count AS "idleCount", b.count AS "busyCount"
    FROM pools p CROSS JOIN LATERAL (
      SELECT count(*)::int FROM machine_owners w JOIN machines m ON m.id = w.machine_id JOIN nodes n ON n.id = m.node_id
      WHERE w.kind = 'pool' AND w.id = p.id AND ${IS_IDLE}) i
    CROSS JOIN LATERAL (
      SELECT count(*)::int FROM pool_claims c JOIN machines m ON m.id = c.machine_id
      WHERE c.pool_id = p.id AND m.deleted_at IS NULL) b
    WHERE p.tenant_id = ${tenantId} AND p.deleted_at IS NULL ORDER BY p.created_at, p.id`);

export const countPools = async (db: Queryable): Promise<number> =>
  (await db.queryOne<{ count: number }>(sql`SELECT count(*)::int AS count FROM pools WHERE deleted_at IS NULL`))
    ?.count ?? 0;

/** A pool that was not deleted. */
export const findPool = (db: Queryable, { tenantId, id }: PoolName): Promise<PoolRecord | undefined> =>
  db.queryOne<PoolRecord>(sql`
    SELECT ${COLUMNS} FROM pools p WHERE p.id = ${id} AND p.tenant_id = ${tenantId} AND p.deleted_at IS NULL`);

type NewPool = Omit<PoolRecord, "error" | "failures" | "retryAt" | "isDeleted">;

/** A known id was inserted by the first run of the same request. undefined: there is no such tenant. */
export function insertPool(db: Database, pool: NewPool, max: number): Promise<"inserted" | "too_many" | undefined> {
  return db.transaction(async (transaction) => {
    // Pools of a tenant are made one at a time, so that the count holds.
    const { id, tenantId } = pool;
    const tenant = await transaction.queryOne(
      sql`SELECT 1 AS one FROM tenants WHERE id = ${tenantId} FOR NO KEY UPDATE`,
    );
    if (tenant === undefined) return undefined;
    await transaction.execute(sql`
      INSERT INTO pools (id, tenant_id, created_by, image, cpus, memory_mb, has_network, max_idle_seconds, target_size, created_at)
      SELECT ${id}, ${tenantId}, ${pool.createdBy}, ${pool.image}, ${pool.cpus}::integer, ${pool.memoryMb}::integer,
        ${pool.hasNetwork}::boolean, ${pool.maxIdleSeconds}::bigint, ${pool.targetSize}::integer,
        ${instantOf(pool.createdAt)}::timestamptz
      WHERE (SELECT count(*) FROM pools WHERE tenant_id = ${tenantId} AND deleted_at IS NULL) < ${max}
      ON CONFLICT DO NOTHING`);
    const found = await transaction.queryOne(
      sql`SELECT 1 AS one FROM pools WHERE id = ${id} AND tenant_id = ${tenantId}`,
    );
    return found === undefined ? "too_many" : "inserted";
  });
}

/** Whether there was such a pool. Its waiting machines are deleted by the loop. */
export const markPoolDeleted = async (db: Queryable, { tenantId, id }: PoolName, now: number): Promise<boolean> =>
  (await db.execute(sql`
    UPDATE pools SET deleted_at = ${instantOf(now)}::timestamptz
    WHERE id = ${id} AND tenant_id = ${tenantId} AND deleted_at IS NULL`)) > 0;

/** Pools of tenants that are not suspended, and deleted ones, in the order of their ids after `after`. */
export const listPoolsToFill = (db: Queryable, after: string, limit: number): Promise<readonly PoolRecord[]> =>
  db.query<PoolRecord>(sql`
    SELECT ${COLUMNS} FROM pools p JOIN tenants t ON t.id = p.tenant_id
    WHERE p.id > ${after} AND (t.status = 'active' OR p.deleted_at IS NOT NULL) ORDER BY p.id LIMIT ${limit}`);

/** The machines of a pool that wait or are to be deleted. */
export async function listMembers(
  db: Queryable,
  poolId: string,
): Promise<readonly (Member & { error: string | null })[]> {
  const rows = await db.query<MachineRow & { memberId: string; isDiscarded: boolean; isLost: boolean }>(sql`
    SELECT w.machine_id AS "memberId", w.discarded_at IS NOT NULL AS "isDiscarded", ${IS_LOST} AS "isLost", ${MACHINE_COLUMNS}
    FROM machine_owners w LEFT JOIN machines m ON m.id = w.machine_id LEFT JOIN nodes n ON n.id = m.node_id
    WHERE w.kind = 'pool' AND w.id = ${poolId} ORDER BY w.created_at, w.machine_id`);
  return rows.map((row) => {
    const { memberId: machineId, isDiscarded, isLost } = row;
    const unmade = { phase: null, isUsed: false, isLost: false, readyAt: null, error: null };
    if (row.id === null) return { machineId, isDiscarded, ...unmade };
    const machine = fromRow(row);
    return {
      machineId,
      isDiscarded,
      isLost,
      phase: machine.deletedAt === null ? phaseOf(machine) : "deleted",
      isUsed: machine.lastActivityAt !== null,
      readyAt: machine.readyAt,
      error: machine.error ?? machine.observedReason,
    };
  });
}

/** Adds rows for the machines that are missing, with the first of the ids. Returns their number. */
export function addMembers(db: Database, poolId: string, ids: readonly string[], now: number): Promise<number> {
  return db.transaction(async (transaction) => {
    // The lock makes two servers count one after the other.
    const pool = await transaction.queryOne<{ targetSize: number }>(sql`
      SELECT target_size AS "targetSize" FROM pools WHERE id = ${poolId} AND deleted_at IS NULL FOR UPDATE`);
    if (pool === undefined) return 0;
    return await transaction.execute(sql`
      INSERT INTO machine_owners (machine_id, kind, id, created_at)
      SELECT u.id, 'pool', ${poolId}, ${instantOf(now)}::timestamptz FROM unnest(${[...ids]}::text[]) WITH ORDINALITY u(id, position)
      WHERE u.position <= ${pool.targetSize} - (
        SELECT count(*) FROM machine_owners w WHERE w.kind = 'pool' AND w.id = ${poolId} AND w.discarded_at IS NULL)`);
  });
}

/**
 * Decides to delete the machines of a pool whose node is lost, unless they were used. Returns how many. A
 * claim that comes first keeps its machine, and a heartbeat that comes first keeps all of its node.
 */
export const discardLost = (db: Queryable, poolId: string, now: number): Promise<number> =>
  db.execute(sql`
    UPDATE machine_owners w SET discarded_at = ${instantOf(now)}::timestamptz
    FROM machines m JOIN nodes n ON n.id = m.node_id
    WHERE w.kind = 'pool' AND w.id = ${poolId} AND m.id = w.machine_id AND w.discarded_at IS NULL
      AND m.last_activity_at IS NULL AND ${IS_LOST}`);

/** The machines of a node whose deletion was decided and not done yet. */
export const listDiscardedOf = (
  db: Queryable,
  nodeId: string,
  limit: number,
): Promise<readonly { readonly id: string; readonly tenantId: string }[]> =>
  db.query(sql`
    SELECT m.id, m.tenant_id AS "tenantId" FROM machines m JOIN machine_owners w ON w.machine_id = m.id
    WHERE m.node_id = ${nodeId} AND w.discarded_at IS NOT NULL AND m.deleted_at IS NULL ORDER BY m.id LIMIT ${limit}`);

/** Machines that may be replaced, and are not in a pool any more. */
export const listGiven = async (db: Queryable, limit: number): Promise<readonly string[]> =>
  (
    await db.query<{ id: string }>(sql`
      SELECT m.id FROM machines m WHERE m.fence = 'on' AND m.deleted_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM machine_owners w WHERE w.machine_id = m.id)
      ORDER BY m.id LIMIT ${limit}`)
  ).map(({ id }) => id);

/** Decides to delete a machine. false: it was claimed meanwhile. */
export const discardMember = async (db: Queryable, machineId: string, now: number): Promise<boolean> =>
  (await db.execute(sql`
    UPDATE machine_owners SET discarded_at = coalesce(discarded_at, ${instantOf(now)}::timestamptz)
    WHERE machine_id = ${machineId}`)) > 0;

export const forgetMember = (db: Queryable, machineId: string): Promise<number> =>
  db.execute(sql`DELETE FROM machine_owners WHERE machine_id = ${machineId}`);

/**
 * Forgets claimed machines that were deleted, and the pool itself when it was deleted and nothing waits in
 * it.
 */
export async function sweepPool(db: Queryable, poolId: string, now: number): Promise<void> {
  await db.execute(sql`
    DELETE FROM pool_claims c WHERE c.pool_id = ${poolId}
      AND (EXISTS (SELECT 1 FROM machines m WHERE m.id = c.machine_id AND m.deleted_at IS NOT NULL)
        OR c.claimed_at < ${instantOf(now - CLAIMED_UNMADE_MS)}::timestamptz
          AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.id = c.machine_id))`);
  await db.execute(sql`
    DELETE FROM pools p WHERE p.id = ${poolId} AND p.deleted_at IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM machine_owners w WHERE w.kind = 'pool' AND w.id = p.id)`);
}

/** Notes a failure, unless another server has noted one since `failures` was read. */
export const notePoolFailure = (
  db: Queryable,
  { id, failures }: Pick<PoolRecord, "id" | "failures">,
  { error, retryAt }: { readonly error: string; readonly retryAt: number },
): Promise<number> =>
  db.execute(sql`
    UPDATE pools SET error = ${error}, failures = failures + 1, retry_at = ${instantOf(retryAt)}::timestamptz
    WHERE id = ${id} AND failures = ${failures}`);

export const clearPoolFailures = (db: Queryable, id: string): Promise<number> =>
  db.execute(sql`UPDATE pools SET error = NULL, failures = 0, retry_at = NULL WHERE id = ${id}`);

/**
 * Claims the machine that has waited longest. Concurrent claims get different ones; a repeated one gets the
 * same. undefined: none waits, or the tenant has no such pool.
 */
export async function claimMember(
  db: Queryable,
  { id: poolId, tenantId }: PoolName,
  { claimId, now }: { readonly claimId: string; readonly now: number },
): Promise<string | undefined> {
  const row = await db.queryOne<{ machineId: string }>(sql`
    WITH claimed AS (
      SELECT c.machine_id FROM pool_claims c
      JOIN pools p ON p.id = c.pool_id AND p.tenant_id = ${tenantId} AND p.deleted_at IS NULL
      WHERE c.claim_id = ${claimId} AND c.pool_id = ${poolId}
      UNION SELECT m.id FROM machines m JOIN pools p ON p.id = ${poolId} AND p.tenant_id = ${tenantId} AND p.deleted_at IS NULL
      WHERE m.id = ${claimId} AND m.tenant_id = ${tenantId} AND m.deleted_at IS NULL),
    taken AS (
      DELETE FROM machine_owners WHERE NOT EXISTS (SELECT 1 FROM claimed) AND machine_id = (
        SELECT w.machine_id FROM machine_owners w JOIN machines m ON m.id = w.machine_id JOIN nodes n ON n.id = m.node_id
        JOIN pools p ON p.id = w.id AND p.tenant_id = ${tenantId} AND p.deleted_at IS NULL
        WHERE w.kind = 'pool' AND w.id = ${poolId} AND ${IS_IDLE} ORDER BY w.created_at, w.machine_id LIMIT 1 FOR UPDATE OF w SKIP LOCKED)
      RETURNING machine_id),
    given AS (
      INSERT INTO pool_claims (machine_id, pool_id, claimed_at, claim_id)
      SELECT machine_id, ${poolId}, ${instantOf(now)}::timestamptz, ${claimId} FROM taken)
    SELECT machine_id AS "machineId" FROM claimed UNION ALL SELECT machine_id FROM taken`);
  return row?.machineId;
}

/** Counts a machine that is made for a claim, because none waited. */
export const addClaimed = (
  db: Queryable,
  { poolId, machineId, now }: { readonly poolId: string; readonly machineId: string; readonly now: number },
): Promise<number> =>
  db.execute(sql`
    INSERT INTO pool_claims (machine_id, pool_id, claimed_at, claim_id)
    VALUES (${machineId}, ${poolId}, ${instantOf(now)}::timestamptz, ${machineId})
    ON CONFLICT DO NOTHING`);
