/**
 * SQL statements for the events of tenants: tenant_events.
 *
 * An event outlives its machine; after 30 days it is purged. There are two ways to read:
 * - A machine's timeline, in the order in which things happened. Events of nodes and batches are written
 *   later than they happened, so a new event may appear before the last one of a timeline.
 * - A tenant's events, in the order of the transactions that wrote them (after those from before a restore).
 *   Positions are assigned before a transaction commits, so a reader that continued after the highest
 *   position could miss an event that commits later. Therefore only events of transactions older than the
 *   oldest running one are read: no event can be inserted before them any more. A long transaction anywhere
 *   in the PostgreSQL cluster delays readers, but nothing is lost.
 */
import { eventDocument, eventJson, insertEvents } from "../write-events.ts";
import { knownEvent } from "./known.ts";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { NodeEvent } from "@flotilla/contract/link/link";
import type { Context } from "../context.ts";
import { type Database, type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { isOfType } from "../db/of-type.ts";
import type { Mark, Watched } from "./changes.ts";
import type { EventRecord, TenantEventRecord } from "./view.ts";

const EVENT_AGE_MAX_MS = 30 * 24 * 60 * 60_000;

/**
 * Events that a node reported for its machines; each is written once, however often it is reported. An event
 * of a type that this release does not know is left out: a later release of the node reports it.
 */
export async function insertNodeEvents(
  context: Context,
  options: { readonly nodeId: string; readonly agentBootId: string; readonly events: readonly NodeEvent[] },
): Promise<number> {
  const { nodeId, agentBootId, events } = options;
  const rows = events.flatMap(({ sequence, machineId, type, data, at }) => {
    const known = knownEvent("machine", { type, data });
    if (known === null) return [];
    const event = eventDocument(known, { id: nodeId, bootId: agentBootId, sequence });
    // By the node's clock, which may be ahead.
    return [{ machine_id: machineId, event, at: instantOf(Math.min(at, context.clock.now())) }];
  });
  return await context.db.execute(
    insertEvents(sql`
      SELECT m.tenant_id, m.id AS subject_id, e.event, e.at AS created_at
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS e(machine_id text, event jsonb, at timestamptz)
      JOIN machines m ON m.id = e.machine_id AND m.node_id = ${nodeId}
      ORDER BY (e.event#>>'{node,sequence}')::bigint`),
  );
}

/** One event for every machine of these nodes whose desired state is running. */
export async function noteOnNodes(
  context: Context,
  notes: readonly { readonly nodeId: string; readonly event: NewEvent }[],
): Promise<void> {
  if (notes.length === 0) return;
  const rows = notes.map(({ nodeId, event }) => ({ node_id: nodeId, event: eventDocument(event) }));
  await context.db.execute(
    insertEvents(sql`
      SELECT m.tenant_id, m.id AS subject_id, n.event, ${instantOf(context.clock.now())}::timestamptz AS created_at
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS n(node_id text, event jsonb)
      JOIN machines m ON m.node_id = n.node_id AND m.is_active`),
  );
}

/** One event for every fenced machine of these nodes. */
export async function noteOnFenced(context: Context, nodeIds: readonly string[], event: NewEvent): Promise<void> {
  await context.db.execute(
    insertEvents(sql`
      SELECT tenant_id, id AS subject_id, ${eventJson(event)} AS event,
        ${instantOf(context.clock.now())}::timestamptz AS created_at
      FROM machines WHERE node_id = ANY(${[...nodeIds]}::text[]) AND is_active AND fence = 'on'`),
  );
}

export interface TimelinePage {
  readonly machineId: string;
  /** A type, or `machine.*`; null: all. */
  readonly type: string | null;
  /** Only events after the one with this position. */
  readonly after: number | null;
  readonly limit: number;
}

/**
 * A machine's timeline, oldest first. A cursor whose event was purged starts at the beginning, since that
 * event was older.
 */
export function listTimeline(
  db: Queryable,
  { machineId, type, after, limit }: TimelinePage,
): Promise<readonly EventRecord[]> {
  return db.query(sql`
    SELECT ${TIMELINE_COLUMNS} FROM tenant_events e
    WHERE subject_kind = 'machine' AND subject_id = ${machineId} AND ${isOfType(TYPE, type)} AND (created_at, position) > (
      SELECT coalesce(max(created_at), '-infinity'), coalesce(max(position), 0) FROM tenant_events
      WHERE subject_kind = 'machine' AND subject_id = ${machineId} AND position = ${after}::bigint)
    ORDER BY created_at, position LIMIT ${limit}`);
}

/** The newest events of a machine's timeline, oldest first. */
export function listNewest(
  db: Queryable,
  { machineId, type, limit }: Omit<TimelinePage, "after">,
): Promise<readonly EventRecord[]> {
  return db.query(sql`
    SELECT ${TIMELINE_COLUMNS} FROM (
      SELECT * FROM tenant_events e
      WHERE subject_kind = 'machine' AND subject_id = ${machineId} AND ${isOfType(TYPE, type)}
      ORDER BY created_at DESC, position DESC LIMIT ${limit}::int) e
    ORDER BY created_at, position`);
}

const TYPE = sql`e.type`;
const TIMELINE_COLUMNS = sql`
  e.position, e.id, e.type, e.data, e.level, e.message, ms(e.created_at) AS "createdAt"`;

export interface TenantEventsPage {
  readonly tenantId: string;
  /** null: all machines, and what is of none. */
  readonly machineId: string | null;
  /** With its instances; null: all apps, and what is of none. */
  readonly appId: string | null;
  /** A type, or all with a prefix: `machine.*`; null: all. */
  readonly type: string | null;
  /** Only events after the one with this position in the order of the list. */
  readonly after: number | null;
  /** Begins with the last one. Default: with the first one. */
  readonly isNewestFirst?: boolean;
  readonly limit: number;
}

/**
 * A tenant's events in an order that can be followed: a reader that continues after its last event misses
 * none. A cursor whose event was purged starts at the beginning. The events of a machine and of an app are
 * found by their own indexes: IS NOT DISTINCT FROM keeps PostgreSQL from combining them with the tenant's, of
 * which it would read everything.
 */
export function listTenantEvents(db: Queryable, page: TenantEventsPage): Promise<readonly TenantEventRecord[]> {
  const { tenantId, machineId, appId } = page;
  if (appId !== null)
    return db.query(sql`
      SELECT ${EVENT_COLUMNS} FROM tenant_events e
      WHERE e.subject_kind IN ('app', 'instance')
        AND (CASE e.subject_kind WHEN 'app' THEN e.subject_id ELSE e.data->>'appId' END) = ${appId}
        AND e.tenant_id IS NOT DISTINCT FROM ${tenantId} AND ${followed(page)}`);
  if (machineId === null)
    return db.query(sql`
      SELECT ${EVENT_COLUMNS} FROM tenant_events e WHERE e.tenant_id = ${tenantId} AND ${followed(page)}`);
  return db.query(sql`
    SELECT ${EVENT_COLUMNS} FROM tenant_events e
    WHERE e.subject_kind = 'machine' AND e.subject_id = ${machineId} AND e.tenant_id IS NOT DISTINCT FROM ${tenantId} AND ${followed(page)}`);
}

/** The last of a tenant's events that can be followed; null: there is none. */
export async function findNewest(db: Queryable, tenantId: string): Promise<number | null> {
  const row = await db.queryOne<{ position: number }>(sql`
    SELECT e.position FROM tenant_events e WHERE e.tenant_id = ${tenantId} AND ${IS_SETTLED}
    ORDER BY e.restored_rank DESC, e.transaction_id DESC, e.position DESC LIMIT 1`);
  return row?.position ?? null;
}

/** No event can be inserted before `e`, a row of tenant_events, any more. */
const IS_SETTLED = sql`e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())`;

const EVENT_COLUMNS = sql`
  ${TIMELINE_COLUMNS}, e.subject_kind AS "subjectKind", e.subject_id AS "subjectId"`;

/** Whether `e`, a row of tenant_events, is of the page. */
const followed = ({ tenantId, type, after, isNewestFirst = false, limit }: TenantEventsPage): Statement =>
  isNewestFirst
    ? sql`
      ${isOfType(TYPE, type)} AND ${IS_SETTLED} AND (${after}::bigint IS NULL OR ${PLACE} < (${placeOf(tenantId, after)}))
    ORDER BY e.restored_rank DESC, e.transaction_id DESC, e.position DESC LIMIT ${limit}::int`
    : sql`
      ${isOfType(TYPE, type)} AND ${IS_SETTLED} AND ${PLACE} > (${placeOf(tenantId, after)})
    ORDER BY e.restored_rank, e.transaction_id, e.position LIMIT ${limit}::int`;

const PLACE = sql`(e.restored_rank, e.transaction_id, e.position)`;

/** The place of the event with this position; before all others if it was purged. */
const placeOf = (tenantId: string, position: number | null): Statement => sql`
        SELECT coalesce(max(restored_rank), 0), coalesce(max(transaction_id), '0'::xid8), coalesce(max(position), 0)
        FROM tenant_events WHERE tenant_id = ${tenantId} AND position = ${position}::bigint`;

/** Ended operations are looked at this long: longer than clocks of servers differ. */
const ENDED_MS = 120_000;

/** The states of what has no events. */
export function readMarks(db: Queryable, now: number, watched: Watched): Promise<readonly Mark[]> {
  const { tenantId, hasNodes, hasAudit } = watched;
  return db.query<Mark>(sql`
    SELECT 'operation' AS kind, id, status || updated_at AS mark FROM operations
      WHERE tenant_id = ${tenantId} AND status = 'running'
    UNION ALL
    SELECT 'operation', id, status || updated_at FROM operations
      WHERE tenant_id = ${tenantId} AND status <> 'running' AND updated_at > ${instantOf(now - ENDED_MS)}::timestamptz
    UNION ALL
    SELECT 'app', a.id, md5(concat_ws(' ', a.updated_at, a.waiting_for, a.failures, a.retry_at, a.count, a.is_degraded,
        r.to_release, r.is_promoted, r.progress, least(a.route_version, (SELECT min(version) FROM ingress_leases)),
        (SELECT string_agg(concat_ws(' ', i.machine_id, i.is_routed, i.seen, i.error, i.retired_at), ',' ORDER BY i.machine_id)
          FROM app_instances i WHERE i.app_id = a.id AND i.removed_at IS NULL)))
      FROM apps a LEFT JOIN app_rollouts r ON r.app_id = a.id AND r.ended_at IS NULL
      WHERE a.tenant_id = ${tenantId} AND a.deleted_at IS NULL
    UNION ALL
    SELECT 'node', id, concat_ws(' ', status, cordoned_at, maintenance_at, held_at, lost_at, release, last_error_at)
      FROM nodes WHERE ${hasNodes}::boolean
    UNION ALL
    SELECT 'audit', tenant_id, sequence::text FROM audit_chains
      WHERE tenant_id = ${tenantId} AND ${hasAudit}::boolean`);
}

/** Deletes old events. Returns how many. */
export function purgeEvents(context: Context, limit: number): Promise<number> {
  return context.db.execute(sql`
    DELETE FROM tenant_events WHERE position IN (
      SELECT position FROM tenant_events WHERE created_at < ${instantOf(context.clock.now() - EVENT_AGE_MAX_MS)}
      LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}

/** Max events that one statement renumbers, because statements have a time limit. */
const REORDERED_AT_ONCE = 10_000;

/**
 * Runs when a server starts. A dump restored into another PostgreSQL has transaction numbers ahead of the new
 * cluster's: new events would sort before old ones, and old ones would not be read. This gives the events of
 * such a tenant present transaction numbers, and a rank that keeps their order. Returns how many.
 *
 * A tenant's events are renumbered from the first one on, some at a time. After a crash the last one still
 * has a number from before, so all begins again: renumbered events keep their place.
 */
export async function reorderRestoredEvents(db: Database, atOnce = REORDERED_AT_ONCE): Promise<number> {
  const tenants = await db.query<{ id: string }>(sql`
    SELECT t.id FROM tenants t CROSS JOIN LATERAL (
      SELECT e.transaction_id FROM tenant_events e WHERE e.tenant_id = t.id
      ORDER BY e.restored_rank DESC, e.transaction_id DESC, e.position DESC LIMIT 1) last
    WHERE last.transaction_id > pg_snapshot_xmax(pg_current_snapshot()) ORDER BY t.id`);
  let count = 0;
  for (const { id } of tenants) {
    let after: Place = { rank: "0", transaction: "0", position: "0" };
    for (let before = 0; ; before += atOnce) {
      const last = await reorderSome(db, id, { after, before, atOnce });
      if (last === undefined) break;
      count += last.count;
      after = last;
    }
  }
  return count;
}

/** Place of an event before it was renumbered. Numbers are text, because they may exceed 2^53. */
interface Place {
  readonly rank: string;
  readonly transaction: string;
  readonly position: string;
}

/**
 * Renumbers a tenant's next events, from `before` + 1 on. Returns the former place of the last; undefined:
 * none.
 */
function reorderSome(
  db: Database,
  tenantId: string,
  { after, before, atOnce }: { readonly after: Place; readonly before: number; readonly atOnce: number },
): Promise<(Place & { readonly count: number }) | undefined> {
  return db.queryOne(sql`
    WITH ranked AS (
      SELECT e.position, e.restored_rank, e.transaction_id,
        row_number() OVER (ORDER BY e.restored_rank, e.transaction_id, e.position) AS rank
      FROM tenant_events e
      WHERE e.tenant_id = ${tenantId} AND (e.restored_rank, e.transaction_id, e.position)
        > (${after.rank}::bigint, ${after.transaction}::text::xid8, ${after.position}::bigint) AND e.position <> ${after.position}::bigint
      ORDER BY e.restored_rank, e.transaction_id, e.position LIMIT ${atOnce}::int),
    renumbered AS (
      UPDATE tenant_events e SET transaction_id = pg_current_xact_id(), restored_rank = ${before}::bigint + r.rank
      FROM ranked r WHERE e.position = r.position)
    SELECT r.restored_rank::text AS rank, r.transaction_id::text AS transaction, r.position::text AS position,
      (SELECT count(*) FROM ranked)::int AS count
    FROM ranked r ORDER BY r.rank DESC LIMIT 1`);
}
