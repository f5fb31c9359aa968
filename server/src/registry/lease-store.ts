/**
 * Every SQL statement for the leases of the registry, and for the one collection that may run.
 *
 * Always: a lease and a collection exclude each other, because both lock the row of the collection.
 */
import type { Context } from "../context.ts";
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface Lease {
  readonly holder: string;
  readonly repository: string;
  readonly nodeId: string | null;
  readonly tenantId: string | null;
  /** Epoch milliseconds. */
  readonly expiresAt: number;
}

/** Begins a lease, or makes it longer. False: a collection runs. */
export const takeLease = async (db: Queryable, lease: Lease & { readonly now: number }): Promise<boolean> =>
  (await db.execute(sql`
    WITH free AS (
      SELECT FROM registry_collection WHERE running_until IS NULL OR running_until < ${instantOf(lease.now)}::timestamptz
      FOR SHARE)
    INSERT INTO registry_leases (holder, repository, node_id, tenant_id, expires_at)
    SELECT ${lease.holder}, ${lease.repository}, ${lease.nodeId}, ${lease.tenantId}, ${instantOf(lease.expiresAt)}::timestamptz
    FROM free
    ON CONFLICT (holder, repository) DO UPDATE
    SET expires_at = greatest(registry_leases.expires_at, excluded.expires_at), node_id = excluded.node_id`)) > 0;

/** Ends all leases of the holder, or its lease of one repository. */
export const endLeases = (db: Queryable, holder: string, repository: string | null = null): Promise<number> =>
  db.execute(sql`
    DELETE FROM registry_leases WHERE holder = ${holder} AND (${repository}::text IS NULL OR repository = ${repository})`);

/** Whether the node has a live lease of the repository, under which it may push to it and read it. */
export const findNodeLease = (
  db: Queryable,
  { nodeId, repository, now }: { readonly nodeId: string; readonly repository: string; readonly now: number },
): Promise<{ readonly holder: string; readonly tenantId: string | null } | undefined> =>
  db.queryOne(sql`
    SELECT holder, tenant_id AS "tenantId" FROM registry_leases
    WHERE node_id = ${nodeId} AND repository = ${repository} AND expires_at > ${instantOf(now)}::timestamptz LIMIT 1`);

/** Ends the holder's lease of a repository unless something was uploaded there that no manifest names. */
export const endLeaseIfDone = (db: Queryable, holder: string, repository: string): Promise<number> =>
  db.execute(sql`
    DELETE FROM registry_leases WHERE holder = ${holder} AND repository = ${repository}
      AND NOT EXISTS (SELECT FROM registry_uploads u WHERE u.repository = ${repository})
      AND NOT EXISTS (SELECT FROM registry_loose_blobs l WHERE l.repository = ${repository})`);

/** Deletes leases that have ended. */
export const purgeRegistryLeases = ({ db, clock }: Pick<Context, "clock" | "db">, max: number): Promise<number> =>
  db.execute(sql`
    DELETE FROM registry_leases WHERE (holder, repository) IN (
      SELECT holder, repository FROM registry_leases WHERE expires_at < ${instantOf(clock.now())}::timestamptz LIMIT ${max}
      FOR UPDATE SKIP LOCKED)`);

export interface CollectionTurn {
  /** The operation that runs it. */
  readonly operationId: string;
  readonly now: number;
  readonly until: number;
  /** It runs already, and is to run longer. */
  readonly isRenewal: boolean;
}

/** Begins a collection, or makes it longer. False: a lease is live, or another one runs. */
export const beginCollection = (
  db: Database,
  { operationId, now, until, isRenewal }: CollectionTurn,
): Promise<boolean> =>
  db.transaction(async (transaction) => {
    // Leases that are being taken are waited for, and those that come later wait.
    const state = await transaction.queryOne<{ readonly isRunning: boolean; readonly isOwn: boolean }>(sql`
      SELECT coalesce(running_until >= ${instantOf(now)}::timestamptz, false) AS "isRunning",
        coalesce(operation_id = ${operationId}, false) AS "isOwn"
      FROM registry_collection FOR UPDATE`);
    if (state === undefined || state.isRunning !== isRenewal || (isRenewal && !state.isOwn)) return false;
    const live = await transaction.queryOne(sql`
      SELECT FROM registry_leases WHERE expires_at >= ${instantOf(now)}::timestamptz LIMIT 1`);
    if (live !== undefined && !isRenewal) return false;
    await transaction.execute(sql`
      UPDATE registry_collection SET running_until = ${instantOf(until)}::timestamptz, operation_id = ${operationId}`);
    return true;
  });

/**
 * Ends the collection. `endedAt` null: it has failed. Blobs that it may have deleted are not known as
 * uploaded any more.
 */
export const endCollection = (
  db: Database,
  { operationId, endedAt }: { readonly operationId: string; readonly endedAt: number | null },
): Promise<void> =>
  db.transaction(async (transaction) => {
    const isOwn = await transaction.queryOne(sql`
      SELECT FROM registry_collection WHERE operation_id = ${operationId} FOR UPDATE`);
    if (isOwn === undefined) return;
    await transaction.execute(sql`DELETE FROM registry_loose_blobs`);
    await transaction.execute(sql`
      UPDATE registry_collection SET running_until = NULL, ended_at = coalesce(${instantOf(endedAt)}::timestamptz, ended_at)`);
  });

export interface CollectionState {
  /** Whose operation a collection is that no one has asked for. */
  readonly tenantId: string;
  /** When the last one ended, in epoch milliseconds; before the first: when the cluster was set up. */
  readonly lastAt: number;
  readonly isRequested: boolean;
}

export const readCollectionState = (db: Queryable): Promise<CollectionState | undefined> =>
  db.queryOne<CollectionState>(sql`
    SELECT t.id AS "tenantId", ms(coalesce(c.ended_at, l.created_at)) AS "lastAt",
      EXISTS (SELECT FROM operations o WHERE o.kind = 'registry collection' AND o.status = 'running') AS "isRequested"
    FROM registry_collection c, cluster l, tenants t ORDER BY t.name = 'default' DESC, t.created_at LIMIT 1`);
