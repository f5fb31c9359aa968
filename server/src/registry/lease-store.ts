/**
 * Every SQL statement for the leases of the registry, and for the one collection that may run.
 *
 * Always: a lease and a collection exclude each other, because both lock the row of the collection.
 */
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
export const takeLease = (db: Database, lease: Lease & { readonly now: number }): Promise<boolean> =>
  db.transaction(async (transaction) => {
    const running = await transaction.queryOne(sql`
      SELECT FROM registry_collection WHERE running_until >= ${instantOf(lease.now)}::timestamptz FOR SHARE`);
    if (running !== undefined) return false;
    // The row is locked also where no collection runs, so that none begins before the lease is there.
    await transaction.query(sql`SELECT FROM registry_collection FOR SHARE`);
    await transaction.execute(sql`
      INSERT INTO registry_leases (holder, repository, node_id, tenant_id, expires_at)
      SELECT ${lease.holder}, ${lease.repository}, ${lease.nodeId}, ${lease.tenantId}, ${instantOf(lease.expiresAt)}::timestamptz
      ON CONFLICT (holder, repository) DO UPDATE
      SET expires_at = greatest(registry_leases.expires_at, excluded.expires_at), node_id = excluded.node_id`);
    return true;
  });

/** Ends all leases of the holder, or its lease of one repository. */
export const endLeases = (db: Queryable, holder: string, repository: string | null = null): Promise<number> =>
  db.execute(sql`
    DELETE FROM registry_leases WHERE holder = ${holder} AND (${repository}::text IS NULL OR repository = ${repository})`);
