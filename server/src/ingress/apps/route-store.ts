/**
 * Every statement of an ingress for the table of targets and for its lease. A database role of an ingress may
 * run all of them except `purgeIngressLeases`.
 *
 * Always:
 * - The tables of apps are read only; ingress_leases is written here only, each ingress its own row.
 * - One statement reads the version and the changes up to it, so both are of the same instant.
 * - Leases are dated by the database's clock: clocks of hosts may differ.
 */
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { LEASE_MS } from "./lease.ts";
import { type RouteChange, type RouteChanges, VERSION_OF_NOTHING } from "./route-table.ts";

/** Ended leases are kept this long. */
const GONE_AFTER_MS = 20 * LEASE_MS;

type Row = { readonly latest: number } & (
  | (Omit<RouteChange, "targets"> & { readonly tenantId: string; readonly machineIds: readonly string[] })
  | { readonly id: null }
);

/** What changed after the version. Apps that were destroyed are not among the changes after nothing. */
export async function listRouteChanges(db: Queryable, known: number): Promise<RouteChanges> {
  const rows = await db.query<Row>(sql`
    SELECT v.version AS latest, a.id, a.tenant_id AS "tenantId", a.domain, a.route_version AS version,
      a.deleted_at IS NOT NULL AS "isGone",
      ARRAY(
        SELECT i.machine_id FROM app_instances i WHERE i.app_id = a.id AND i.is_routed ORDER BY i.made_at, i.machine_id
      ) AS "machineIds"
    FROM app_routes_version v
    LEFT JOIN apps a ON a.route_version > ${known} AND (a.deleted_at IS NULL OR ${known > VERSION_OF_NOTHING}::boolean)`);
  const changes = rows.flatMap((row) => (row.id === null ? [] : [changeOf(row)]));
  return { version: rows[0]?.latest ?? VERSION_OF_NOTHING, changes };
}

function changeOf({ tenantId, machineIds, ...row }: Exclude<Row, { readonly id: null }>): RouteChange {
  const { id, domain, isGone, version } = row;
  // A release publishes the app's port first.
  const targets = machineIds.map((machineId) => ({ machine: { tenantId, id: machineId }, port: null }));
  return { id, domain, isGone, version, targets };
}

/** What an ingress confirms with its lease. */
export interface Confirmed {
  readonly version: number;
  /** Open requests of instances that are not in the table, by the id of the machine. */
  readonly open: Readonly<Record<string, number>>;
}

/** Holds the lease for LEASE_MS more. */
export async function renewLease(db: Queryable, id: string, { version, open }: Confirmed): Promise<void> {
  await db.execute(sql`
    INSERT INTO ingress_leases (id, lease_until, version, open)
    VALUES (${id}, now() + ${LEASE_MS} * interval '1 ms', ${version}, ${JSON.stringify(open)}::jsonb)
    ON CONFLICT (id) DO UPDATE SET
      lease_until = excluded.lease_until, version = excluded.version, open = excluded.open`);
}

/** Ends the lease of an ingress that stops, so that no server waits for it. */
export async function removeLease(db: Queryable, id: string): Promise<void> {
  await db.execute(sql`DELETE FROM ingress_leases WHERE id = ${id}`);
}

/** Deletes leases that ended a while ago, at most `limit`. Returns how many. */
export const purgeIngressLeases = ({ db }: Context, limit: number): Promise<number> =>
  db.execute(sql`
    DELETE FROM ingress_leases WHERE id IN (
      SELECT id FROM ingress_leases WHERE lease_until < now() - ${GONE_AFTER_MS} * interval '1 ms'
      ORDER BY lease_until, id LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
