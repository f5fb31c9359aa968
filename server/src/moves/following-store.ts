/**
 * The rows of machines whose disk follows them from another node. changeOwner (store.ts) makes a row, in the statement that makes the
 * other node their owner.
 *
 * Always: while a machine is not deleted, its row is removed only after its node has said that all of the disk is there.
 */
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** A disk that a server is to send. Of a machine that was deleted, there is nothing to send any more. */
export interface FollowingDisk {
  readonly machineId: string;
  readonly tenantId: string;
  /** Where it comes from. */
  readonly nodeId: string;
  readonly moveId: string;
  readonly isDeleted: boolean;
  /** Of this work; another one changes nothing. */
  readonly sentBy: string;
}

export interface ClaimOptions {
  readonly limit: number;
  readonly leaseMs: number;
  readonly sentBy: string;
}

/** Claims disks that no server sends. */
export function claimFollowing(
  { db, clock }: Context,
  { limit, leaseMs, sentBy }: ClaimOptions,
): Promise<readonly FollowingDisk[]> {
  const now = clock.now();
  return db.query<FollowingDisk>(sql`
    UPDATE following_disks f SET sent_by = ${sentBy}, leased_until = ${instantOf(now + leaseMs)}
    FROM machines m
    WHERE m.id = f.machine_id AND f.machine_id IN (
      SELECT machine_id FROM following_disks WHERE leased_until IS NULL OR leased_until < ${instantOf(now)}
      ORDER BY began_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING f.machine_id AS "machineId", m.tenant_id AS "tenantId", f.node_id AS "nodeId", f.move_id AS "moveId",
      m.deleted_at IS NOT NULL AS "isDeleted", f.sent_by AS "sentBy"`);
}

/** false: the machine was deleted, or another server sends its disk. */
export async function keepFollowing(
  { db, clock }: Context,
  { machineId, sentBy }: FollowingDisk,
  leaseMs: number,
): Promise<boolean> {
  const row = await db.queryOne(sql`
    UPDATE following_disks f SET leased_until = ${instantOf(clock.now() + leaseMs)}
    FROM machines m WHERE m.id = f.machine_id AND m.deleted_at IS NULL AND f.machine_id = ${machineId} AND f.sent_by = ${sentBy}
    RETURNING f.machine_id`);
  return row !== undefined;
}

/** Another server may continue now. */
export async function releaseFollowing(db: Queryable, { machineId, sentBy }: FollowingDisk): Promise<void> {
  await db.execute(sql`
    UPDATE following_disks SET leased_until = NULL WHERE machine_id = ${machineId} AND sent_by = ${sentBy}`);
}

/** All of it has arrived, or the machine was deleted: the copy on the other node is to be removed. */
export async function endFollowing(db: Queryable, { machineId, sentBy }: FollowingDisk): Promise<void> {
  await db.execute(sql`
    WITH ended AS (
      DELETE FROM following_disks WHERE machine_id = ${machineId} AND sent_by = ${sentBy} RETURNING machine_id, node_id)
    INSERT INTO machine_copies (machine_id, node_id) SELECT machine_id, node_id FROM ended ON CONFLICT DO NOTHING`);
}

/** The node from which a machine's disk still follows it; null: its disk is where it is. */
export async function findFollowing(db: Queryable, machineId: string): Promise<string | null> {
  const row = await db.queryOne<{ readonly nodeId: string }>(sql`
    SELECT node_id AS "nodeId" FROM following_disks WHERE machine_id = ${machineId}`);
  return row?.nodeId ?? null;
}

/** Machines whose disks still come from a node, in the order of their ids. */
export function listFollowedFrom(db: Queryable, nodeId: string): Promise<readonly { readonly id: string }[]> {
  return db.query<{ id: string }>(sql`
    SELECT f.machine_id AS id FROM following_disks f JOIN machines m ON m.id = f.machine_id
    WHERE f.node_id = ${nodeId} AND m.deleted_at IS NULL ORDER BY 1`);
}
