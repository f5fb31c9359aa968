/**
 * Every statement over the rows of leases.
 *
 * Always: a lease that has ended does not change. All times are of the database's clock.
 */
import { type Queryable, sql } from "../db/database.ts";

/** The server of a lease that is not ready after this time has died, and its caller is gone. */
const ASSIGNING_MS_MAX = 10 * 60_000;
/** A hundred years: a lease whose time is longer has no end. */
const SECONDS_MAX = 100 * 365 * 24 * 60 * 60;
/** Ended leases are shown this long. */
const ENDED_MS_MAX = 30 * 24 * 60 * 60_000;

export interface LeaseRow {
  readonly tenantId: string;
  readonly id: string;
  readonly operationId: string;
  readonly machineId: string;
  readonly state: "assigning" | "ready" | "completed";
  readonly ownerHash: Buffer;
  readonly reason: string | null;
  readonly score: number | null;
  /** JSON; null: nothing was said. */
  readonly result: string | null;
}

export interface LeaseName {
  readonly tenantId: string;
  readonly id: string;
}

const COLUMNS = sql`
  l.tenant_id AS "tenantId", l.id, l.operation_id AS "operationId", l.machine_id AS "machineId", l.state,
  l.owner_hash AS "ownerHash", l.reason, l.score, l.result`;

export type NewLease = LeaseName & {
  readonly operationId: string;
  readonly machineId: string;
  readonly ownerHash: Buffer;
  readonly ttlSeconds: number | null;
  readonly heartbeatSeconds: number | null;
};

/** The lease: this one, or the one that was asked for before by the same name. */
export async function insertLease(db: Queryable, lease: NewLease): Promise<LeaseRow> {
  await db.execute(sql`
    INSERT INTO leases (tenant_id, id, operation_id, machine_id, state, owner_hash, heartbeat_seconds, expires_at)
    VALUES (${lease.tenantId}, ${lease.id}, ${lease.operationId}, ${lease.machineId}, 'assigning', ${lease.ownerHash},
      ${boundedSeconds(lease.heartbeatSeconds)}::bigint,
      now() + ${boundedSeconds(lease.ttlSeconds)}::float8 * interval '1 second')
    ON CONFLICT DO NOTHING`);
  const row = await findLease(db, lease);
  if (row === undefined) throw new Error(`lease ${lease.id} is gone`);
  return row;
}

export const findLease = (db: Queryable, { tenantId, id }: LeaseName): Promise<LeaseRow | undefined> =>
  db.queryOne<LeaseRow>(sql`SELECT ${COLUMNS} FROM leases l WHERE l.tenant_id = ${tenantId} AND l.id = ${id}`);

/** 0 is none, as null. The database's times end at some point. */
const boundedSeconds = (seconds: number | null): number | null =>
  seconds === null || seconds === 0 ? null : Math.min(seconds, SECONDS_MAX);

/** The lease works from now on; undefined: it has ended, or is gone. */
export const markReady = (
  db: Queryable,
  { tenantId, id, operationId }: LeaseName & Pick<LeaseRow, "operationId">,
): Promise<LeaseRow | undefined> =>
  db.queryOne<LeaseRow>(sql`
    UPDATE leases l SET state = 'ready', heartbeat_at = now()
    WHERE l.tenant_id = ${tenantId} AND l.id = ${id} AND l.operation_id = ${operationId} AND l.ended_at IS NULL
    RETURNING ${COLUMNS}`);

/** Forgets a lease whose machine could not be made, so that the same name can be asked for again. */
export async function deleteUnmade(
  db: Queryable,
  { tenantId, id, operationId }: LeaseName & Pick<LeaseRow, "operationId">,
): Promise<void> {
  await db.execute(sql`
    DELETE FROM leases
    WHERE tenant_id = ${tenantId} AND id = ${id} AND operation_id = ${operationId} AND state = 'assigning'`);
}

/** Its owner works; undefined: it is not ready, or has ended. */
export const noteHeartbeat = (db: Queryable, { tenantId, id }: LeaseName): Promise<LeaseRow | undefined> =>
  db.queryOne<LeaseRow>(sql`
    UPDATE leases l SET heartbeat_at = now()
    WHERE l.tenant_id = ${tenantId} AND l.id = ${id} AND l.state = 'ready' RETURNING ${COLUMNS}`);

export interface LeaseEnd {
  readonly reason: string;
  readonly score: number | null;
  /** JSON; null: nothing was said. */
  readonly result: string | null;
}

/** Ends it; undefined: it has ended before. */
export const endLease = (db: Queryable, { tenantId, id }: LeaseName, end: LeaseEnd): Promise<LeaseRow | undefined> =>
  db.queryOne<LeaseRow>(sql`
    UPDATE leases l SET state = 'completed', reason = ${end.reason}, score = ${end.score}, result = ${end.result},
      ended_at = now()
    WHERE l.tenant_id = ${tenantId} AND l.id = ${id} AND l.ended_at IS NULL RETURNING ${COLUMNS}`);

/** Ends up to `limit` leases whose time is over, whose owner is silent, or whose machine is gone. */
export const endOverdue = (db: Queryable, limit: number): Promise<readonly LeaseRow[]> =>
  db.query<LeaseRow>(sql`
    WITH over AS (
      SELECT o.tenant_id, o.id, CASE
        WHEN o.state = 'assigning' THEN CASE WHEN o.created_at < now() - ${ASSIGNING_MS_MAX} * interval '1 millisecond' THEN 'infra_failed' END
        WHEN m.id IS NULL OR m.deleted_at IS NOT NULL THEN 'infra_failed'
        WHEN o.expires_at < now() THEN 'expired'
        WHEN o.heartbeat_at + o.heartbeat_seconds * interval '1 second' < now() THEN 'heartbeat_lost' END AS reason
      FROM leases o LEFT JOIN machines m ON m.id = o.machine_id
      WHERE o.ended_at IS NULL)
    UPDATE leases l SET state = 'completed', reason = over.reason, ended_at = now()
    FROM over
    WHERE l.tenant_id = over.tenant_id AND l.id = over.id AND l.ended_at IS NULL AND (l.tenant_id, l.id) IN (
      SELECT tenant_id, id FROM over WHERE reason IS NOT NULL ORDER BY tenant_id, id LIMIT ${limit})
    RETURNING ${COLUMNS}`);

/** Ended leases whose machines are not deleted yet. */
export const listLeft = (db: Queryable, limit: number): Promise<readonly LeaseRow[]> =>
  db.query<LeaseRow>(sql`
    SELECT ${COLUMNS} FROM leases l WHERE l.ended_at IS NOT NULL AND l.has_machine ORDER BY l.ended_at LIMIT ${limit}`);

export async function noteDeleted(db: Queryable, { tenantId, id }: LeaseName): Promise<void> {
  await db.execute(sql`
    UPDATE leases SET has_machine = false WHERE tenant_id = ${tenantId} AND id = ${id} AND ended_at IS NOT NULL`);
}

export const purgeLeases = ({ db }: { readonly db: Queryable }, limit: number): Promise<number> =>
  db.execute(sql`
    DELETE FROM leases WHERE (tenant_id, id) IN (
      SELECT tenant_id, id FROM leases WHERE ended_at < now() - ${ENDED_MS_MAX} * interval '1 millisecond'
      ORDER BY ended_at LIMIT ${limit})`);
