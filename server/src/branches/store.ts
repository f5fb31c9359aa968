/**
 * Every statement over the rows of branch points.
 *
 * Always:
 * - A row is written before a node is asked for its point, and deleted after the node has removed it. So no
 *   node has a point that no row names, unless the database was restored to an earlier state.
 * - A point is used by its operation while that runs, with its copies on other nodes, and afterwards by the
 *   checkpoint that names it, and by machines that begin with it and have not run yet.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { UNREACHABLE_STATUSES } from "../machines/state.ts";
import { announce } from "../machines/store.ts";

export interface PointRow {
  readonly id: string;
  readonly nodeId: string;
}

export interface NewPoint {
  readonly id: string;
  readonly tenantId: string;
  readonly operationId: string;
  readonly machineId: string;
  readonly nodeId: string;
  readonly hasMemory: boolean;
}

/** What a node says of a point that it has made. Epoch milliseconds; bytes, of which memory is a part. */
export interface MadePoint {
  /** What its disk and its memory take together. */
  readonly bytes: number;
  readonly memoryBytes: number;
  readonly pausedMs: number;
  readonly madeAt: number;
}

/** The point of an operation: this one, unless it has one already. */
export async function insertPoint(context: InsertContext, point: NewPoint): Promise<PointRow> {
  await insertRow(context, point, false);
  return unlessEnded(await findPoint(context.db, point.operationId), point);
}

/** The point that an operation uses. */
export const findPoint = (db: Queryable, operationId: string): Promise<PointRow | undefined> =>
  db.queryOne<PointRow>(sql`
    SELECT id, node_id AS "nodeId" FROM branch_points
    WHERE operation_id = ${operationId} AND NOT is_replaced AND NOT is_copy`);

/** The copy of the operation's point on another node: this one, unless it has one already. */
export async function insertCopy(context: InsertContext, copy: NewPoint): Promise<PointRow> {
  await insertRow(context, copy, true);
  const copies = await listCopies(context.db, copy.operationId);
  return unlessEnded(
    copies.find(({ nodeId }) => nodeId === copy.nodeId),
    copy,
  );
}

type InsertContext = Pick<Context, "clock" | "db">;

async function insertRow({ clock, db }: InsertContext, point: NewPoint, isCopy: boolean): Promise<void> {
  const { id, tenantId, operationId, machineId, nodeId, hasMemory } = point;
  const now = instantOf(clock.now());
  await db.execute(sql`
    INSERT INTO branch_points (id, tenant_id, operation_id, machine_id, node_id, has_memory, created_at, is_copy)
    VALUES (${id}, ${tenantId}, ${operationId}, ${machineId}, ${nodeId}, ${hasMemory}, ${now}, ${isCopy})
    ON CONFLICT DO NOTHING`);
}

function unlessEnded(row: PointRow | undefined, { operationId }: NewPoint): PointRow {
  if (row === undefined) throw new Refusal("conflict", `operation ${operationId} was ended by another server`);
  return row;
}

export const listCopies = (db: Queryable, operationId: string): Promise<readonly PointRow[]> =>
  db.query<PointRow>(sql`
    SELECT id, node_id AS "nodeId" FROM branch_points WHERE operation_id = ${operationId} AND is_copy ORDER BY id`);

/**
 * Has the operation use another point, and its machines and its checkpoint be of that one. Nothing happens
 * if it does not use the point `from`.
 */
export async function replacePoint(
  context: Context,
  operationId: string,
  { from, to, machineIds }: { readonly from: string; readonly to: string; readonly machineIds: readonly string[] },
): Promise<void> {
  const now = instantOf(context.clock.now());
  const changed = await context.db.transaction(async (db) => {
    const replaced = await db.execute(sql`
      UPDATE branch_points SET is_replaced = true
      WHERE id = ${from} AND operation_id = ${operationId} AND NOT is_replaced`);
    if (replaced === 0) return [];
    await db.execute(sql`
      INSERT INTO branch_points (id, tenant_id, operation_id, machine_id, node_id, has_memory, created_at)
      SELECT ${to}, tenant_id, operation_id, machine_id, node_id, has_memory, ${now}::timestamptz
      FROM branch_points WHERE id = ${from}`);
    await db.execute(sql`UPDATE checkpoints SET point_id = ${to} WHERE point_id = ${from}`);
    return await db.query<{ readonly id: string; readonly revision: number }>(sql`
      UPDATE machines SET origin = jsonb_set(origin, '{pointId}', to_jsonb(${to}::text)), revision = revision + 1,
        updated_at = ${now}
      WHERE id = ANY(${[...machineIds]}::text[]) AND origin ->> 'pointId' = ${from} RETURNING id, revision`);
  });
  for (const machine of changed) await announce(context, machine);
}

/** Records that its node has made it. */
export async function notePointMade(db: Queryable, id: string, made: MadePoint): Promise<void> {
  await db.execute(sql`
    UPDATE branch_points SET disk_bytes = ${made.bytes - made.memoryBytes}, memory_bytes = ${made.memoryBytes},
      paused_ms = ${made.pausedMs}, made_at = ${instantOf(made.madeAt)}
    WHERE id = ${id}`);
}

/** A point from which no further machine is made. `address`: of its node; null: that has left for good. */
export interface UnusedPoint extends PointRow {
  readonly address: string | null;
}

/** Points that are not used any more, whose nodes report, or have left for good. */
export const listUnusedPoints = (db: Queryable, limit: number): Promise<readonly UnusedPoint[]> =>
  db.query<UnusedPoint>(sql`
    SELECT p.id, p.node_id AS "nodeId", CASE WHEN n.status <> 'revoked' THEN n.address END AS address
    FROM branch_points p JOIN nodes n ON n.id = p.node_id
    WHERE (p.is_replaced OR NOT EXISTS (SELECT FROM operations o WHERE o.id = p.operation_id AND o.status = 'running')
        AND NOT EXISTS (SELECT FROM checkpoints c WHERE c.point_id = p.id)
        AND NOT EXISTS (
          SELECT FROM machines m
          WHERE m.origin ->> 'machineId' = p.machine_id AND m.origin ->> 'pointId' = p.id AND m.origin IS NOT NULL
            AND m.deleted_at IS NULL AND NOT m.has_run
            AND NOT EXISTS (SELECT FROM machine_runs r WHERE r.machine_id = m.id)))
      AND (n.status = 'revoked' OR n.status <> ALL (${[...UNREACHABLE_STATUSES]}))
    ORDER BY p.created_at, p.id LIMIT ${limit}`);

export async function deletePoint(db: Queryable, id: string): Promise<void> {
  await db.execute(sql`DELETE FROM branch_points WHERE id = ${id}`);
}

/** How many points nodes keep, and what those take that are made. */
export const pointTotals = async (db: Queryable): Promise<{ readonly count: number; readonly bytes: number }> =>
  (await db.queryOne<{ count: number; bytes: number }>(sql`
    SELECT count(*)::int AS count, coalesce(sum(disk_bytes + memory_bytes), 0)::bigint AS bytes FROM branch_points`)) ?? {
    count: 0,
    bytes: 0,
  };
