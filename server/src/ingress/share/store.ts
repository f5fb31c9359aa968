/**
 * Every statement over share links.
 *
 * Always: a machine has at most one; making one replaces the other in the same statement, so the old one is no good from
 * then on for whoever looks; only hashes are kept. Every look is a query: nothing of it is cached.
 */
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { instantOf } from "../../db/instant.ts";

/** false: the tenant has no such machine. */
export async function putShare(
  { db, clock }: Context,
  share: { readonly tenantId: string; readonly machineId: string; readonly hash: Buffer; readonly keyId: string },
): Promise<boolean> {
  const written = await db.execute(sql`
    INSERT INTO machine_shares AS s (machine_id, token_hash, created_by, created_at)
    SELECT id, ${share.hash}, ${share.keyId}, ${instantOf(clock.now())}::timestamptz FROM machines
    WHERE id = ${share.machineId} AND tenant_id = ${share.tenantId} AND deleted_at IS NULL
    ON CONFLICT (machine_id) DO UPDATE SET
      token_hash = excluded.token_hash, created_by = excluded.created_by, created_at = excluded.created_at`);
  return written > 0;
}

/** Whether there was one. */
export async function removeShare(db: Queryable, machineId: string): Promise<boolean> {
  return (await db.execute(sql`DELETE FROM machine_shares WHERE machine_id = ${machineId}`)) > 0;
}

/** What decides who may reach a machine. */
export interface Gate {
  readonly id: string;
  readonly tenantId: string;
  readonly isPublic: boolean;
  readonly isSuspended: boolean;
  /** null: it has no share link. */
  readonly shareHash: Buffer | null;
  /** Of its tenant's plan. */
  readonly requestsPerSecond: number;
  readonly burst: number;
}

/** Of a machine that is not deleted, by its id or by the label of its host. */
export function findGate(db: Queryable, name: string): Promise<Gate | undefined> {
  return db.queryOne<Gate>(sql`
    SELECT m.id, m.tenant_id AS "tenantId", m.is_public AS "isPublic", t.status = 'suspended' AS "isSuspended",
      s.token_hash AS "shareHash", p.rate_requests_per_second AS "requestsPerSecond", p.rate_burst AS burst
    FROM machines m JOIN tenants t ON t.id = m.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) LEFT JOIN machine_shares s ON s.machine_id = m.id
    WHERE m.deleted_at IS NULL AND (m.id = ${name} OR m.host_label = ${name})
    ORDER BY m.id = ${name} DESC LIMIT 1`);
}
