/**
 * Every statement about the fence of machines: the column machines.fence.
 *
 * Always: a fence is requested when a machine is made, and lifted at most once. Each change raises the
 * revision, so that caches and nodes get it.
 */
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { MachineRecord } from "./record.ts";
import { announce, fromRow, MACHINE_COLUMNS, type MachineRow } from "./store.ts";

/**
 * Whether no VM of `m`, a machine on the node `n`, runs while the node is unreachable. Its node has confirmed
 * that; or it has never said that anything of the machine runs, and whatever it received said that it is
 * fenced.
 */
export const MAY_BE_REPLACED = sql`
  m.fence = 'on' AND m.deleted_at IS NULL AND m.move_id IS NULL AND n.can_fence
  AND (coalesce((m.observed_details ->> 'isFenced')::boolean, false) OR m.observed_boot_id IS NULL AND m.observed_generation = 0)`;

/** Whether the machine is to be replaced now. */
export const IS_LOST = sql`coalesce(n.status = 'unreachable' AND n.lost_at IS NOT NULL AND ${MAY_BE_REPLACED}, false)`;

/**
 * Takes a machine that is used without a claim out of its pool. false: the pool is to delete it. A claim, a
 * use and the pool's decision exclude each other by the lock of the row in machine_owners.
 */
export async function takeFromPool(db: Queryable, id: string, now: number): Promise<boolean> {
  const taken = await db.execute(sql`
    WITH taken AS (
      DELETE FROM machine_owners WHERE machine_id = ${id} AND kind = 'pool' AND discarded_at IS NULL RETURNING machine_id, id)
    INSERT INTO pool_claims (machine_id, pool_id, claimed_at) SELECT machine_id, id, ${instantOf(now)}::timestamptz FROM taken`);
  if (taken > 0) return true;
  const discarded = await db.queryOne(sql`
    SELECT 1 AS one FROM machine_owners WHERE machine_id = ${id} AND discarded_at IS NOT NULL`);
  return discarded === undefined;
}

/** Lifts the fence of these machines. Returns those of which this call did. */
export async function beginLift(context: Context, ids: readonly string[]): Promise<readonly MachineRecord[]> {
  const rows = await context.db.query<MachineRow>(sql`
    WITH lifted AS (
      UPDATE machines SET fence = 'lifting', revision = revision + 1
      WHERE id = ANY(${[...ids]}::text[]) AND fence = 'on' AND deleted_at IS NULL RETURNING *)
    SELECT ${MACHINE_COLUMNS} FROM lifted m LEFT JOIN nodes n ON n.id = m.node_id`);
  await Promise.all(rows.map((row) => announce(context, row)));
  return rows.map(fromRow);
}

/** Machines whose node has not confirmed yet that their fence is lifted, and reports. */
export async function listLifting(db: Queryable, limit: number): Promise<readonly MachineRecord[]> {
  const rows = await db.query<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m LEFT JOIN nodes n ON n.id = m.node_id
    WHERE m.fence = 'lifting' AND (n.id IS NULL OR n.status IN ('ready', 'draining', 'drained')) ORDER BY m.id LIMIT ${limit}`);
  return rows.map(fromRow);
}

/**
 * Notes that the fences of these machines are lifted, or that nothing of them is left, if they still have the
 * revision.
 */
export async function endLift(
  db: Queryable,
  machines: readonly Pick<MachineRecord, "id" | "revision">[],
): Promise<void> {
  await db.execute(sql`
    UPDATE machines m SET fence = NULL
    FROM unnest(${machines.map(({ id }) => id)}::text[], ${machines.map(({ revision }) => revision)}::int[]) AS u(id, revision)
    WHERE m.id = u.id AND m.revision = u.revision AND m.fence = 'lifting'`);
}
