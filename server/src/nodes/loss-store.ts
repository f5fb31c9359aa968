/**
 * Every statement about what is decided of nodes that do not report: nodes.lost_at, held_at and held_reason.
 *
 * Always: a decision is written only for nodes that are still unreachable, so a heartbeat that comes first
 * wins.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { MAY_BE_REPLACED } from "../machines/fence-store.ts";
import { MAY_BE_THERE } from "../machines/store.ts";
import type { JudgedNode } from "./brake.ts";

/** All nodes that were not revoked; none while there is no unreachable one of which it is to be decided. */
export const listJudged = (db: Queryable): Promise<readonly JudgedNode[]> =>
  db.query<JudgedNode>(sql`
    SELECT n.id, n.status, n.maintenance_at IS NOT NULL AS "isInMaintenance",
      ms(greatest(n.last_heartbeat_at, n.registered_at)) AS "seenAt",
      ms(n.lost_at) AS "lostAt"
    FROM nodes n WHERE n.status <> 'revoked'
      AND EXISTS (SELECT 1 FROM nodes WHERE status = 'unreachable' AND lost_at IS NULL AND maintenance_at IS NULL)`);

/** Whether a node that should report has been silent since then. */
export async function hasSilent(db: Queryable, since: number): Promise<boolean> {
  const row = await db.queryOne(sql`
    SELECT 1 AS one FROM nodes WHERE status IN ('ready', 'draining') AND maintenance_at IS NULL
      AND greatest(last_heartbeat_at, registered_at) < ${instantOf(since)} LIMIT 1`);
  return row !== undefined;
}

/**
 * Decides that the fenced machines of these nodes are replaced. Returns those of which this call decided it.
 */
export const markLost = (
  db: Queryable,
  ids: readonly string[],
  now: number,
): Promise<readonly { readonly id: string }[]> =>
  db.query(sql`
    UPDATE nodes SET lost_at = ${instantOf(now)}::timestamptz, held_at = NULL, held_reason = NULL
    WHERE id = ANY(${[...ids]}::text[]) AND status = 'unreachable' AND lost_at IS NULL RETURNING id`);

/**
 * Notes why their machines are not replaced; without `isInformed` only where there is no reason yet. Returns
 * those that were not held before.
 */
export const markHeld = (
  db: Queryable,
  ids: readonly string[],
  { reason, isInformed, now }: { readonly reason: string; readonly isInformed: boolean; readonly now: number },
): Promise<readonly { readonly id: string }[]> =>
  db.query(sql`
    WITH before AS (SELECT id, held_at FROM nodes
      WHERE id = ANY(${[...ids]}::text[]) AND status = 'unreachable' AND lost_at IS NULL AND held_reason IS DISTINCT FROM ${reason}
        AND (held_at IS NULL OR ${isInformed}::boolean)
      ORDER BY id FOR UPDATE),
    held AS (
      UPDATE nodes n SET held_at = coalesce(n.held_at, ${instantOf(now)}::timestamptz), held_reason = ${reason}
      FROM before b WHERE n.id = b.id RETURNING n.id)
    SELECT h.id FROM held h JOIN before b ON b.id = h.id WHERE b.held_at IS NULL`);

/** An unreachable node, and what of it is replaced or stays. */
export interface LostNode {
  readonly id: string;
  /** Epoch milliseconds, like the next two. */
  readonly lastHeartbeatAt: number | null;
  readonly heldAt: number | null;
  readonly lostAt: number | null;
  readonly heldReason: string | null;
  readonly isInMaintenance: boolean;
  /** Fenced machines. */
  readonly replaceable: number;
  /** Other machines that are to run; they wait for the node. */
  readonly staying: number;
}

export const listLost = (db: Queryable): Promise<readonly LostNode[]> =>
  db.query<LostNode>(sql`
    SELECT n.id, ms(n.last_heartbeat_at) AS "lastHeartbeatAt",
      ms(n.held_at) AS "heldAt", ms(n.lost_at) AS "lostAt",
      n.held_reason AS "heldReason", n.maintenance_at IS NOT NULL AS "isInMaintenance", c.replaceable, c.staying
    FROM nodes n CROSS JOIN LATERAL (
      SELECT count(*) FILTER (WHERE ${MAY_BE_REPLACED})::int AS replaceable,
        count(*) FILTER (WHERE m.is_active AND NOT (${MAY_BE_REPLACED}))::int AS staying
      FROM machines m WHERE m.node_id = n.id AND ${MAY_BE_THERE} AND m.deleted_at IS NULL) c
    WHERE n.status = 'unreachable' ORDER BY n.id`);

/**
 * Unreachable nodes by what was decided of them. What was decided of one that was revoked since does not
 * count any more.
 */
export async function countLoss(db: Queryable): Promise<{ readonly held: number; readonly lost: number }> {
  const row = await db.queryOne<{ held: number; lost: number }>(sql`
    SELECT count(*) FILTER (WHERE held_at IS NOT NULL)::int AS held, count(*) FILTER (WHERE lost_at IS NOT NULL)::int AS lost
    FROM nodes WHERE status = 'unreachable' AND maintenance_at IS NULL`);
  return row ?? { held: 0, lost: 0 };
}
