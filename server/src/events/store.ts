/**
 * SQL statements for the events of tenants: tenant_events.
 *
 * An event outlives its machine; after 30 days it is purged. There are two ways to read:
 * - A machine's timeline, in the order in which things happened. Events of nodes and batches are written later than
 *   they happened, so a new event may appear before the last one of a timeline.
 * - A tenant's events, in the order of the transactions that wrote them (after those from before a restore).
 *   Positions are assigned before a transaction commits, so a reader that continued after the highest position could
 *   miss an event that commits later. Therefore only events of transactions older than the oldest running one are
 *   read: no event can be inserted before them any more. A long transaction anywhere in the PostgreSQL cluster delays
 *   readers, but nothing is lost.
 */
import type { NodeEvent } from "@flotilla/contract/link/link";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Context } from "../context.ts";
import { type Database, type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { EventRecord, TenantEventRecord } from "./view.ts";

const EVENT_AGE_MAX_MS = 30 * 24 * 60 * 60_000;

/** Events that a node reported for its machines; each is written once, however often it is reported. */
export async function insertNodeEvents(
  context: Context,
  options: { readonly nodeId: string; readonly agentBootId: string; readonly events: readonly NodeEvent[] },
): Promise<number> {
  const { nodeId, agentBootId, events } = options;
  const rows = events.map(({ sequence, machineId, level, message, at }) => ({
    id: context.ids.make("event"),
    machine_id: machineId,
    level,
    message,
    sequence,
    // By the node's clock, which may be ahead.
    at: instantOf(Math.min(at, context.clock.now())),
  }));
  return await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, machine_id, level, message, created_at, node_id, agent_boot_id, node_sequence)
    SELECT e.id, m.tenant_id, e.machine_id, e.level, e.message, e.at, ${nodeId}, ${agentBootId}, e.sequence
    FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
      AS e(id text, machine_id text, level text, message text, at timestamptz, sequence bigint)
    JOIN machines m ON m.id = e.machine_id AND m.node_id = ${nodeId}
    ORDER BY e.sequence
    ON CONFLICT (node_id, agent_boot_id, node_sequence) WHERE node_id IS NOT NULL DO NOTHING`);
}

/** One event for every machine of these nodes whose desired state is running. */
export async function noteOnNodes(
  context: Context,
  notes: readonly { readonly nodeId: string; readonly level: EventLevel; readonly message: string }[],
): Promise<void> {
  if (notes.length === 0) return;
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, machine_id, level, message, created_at)
    SELECT 'ev-' || replace(gen_random_uuid()::text, '-', ''), m.tenant_id, m.id, n.level, n.message,
      ${instantOf(context.clock.now())}::timestamptz
    FROM jsonb_to_recordset(${JSON.stringify(notes)}::jsonb) AS n("nodeId" text, level text, message text)
    JOIN machines m ON m.node_id = n."nodeId" AND m.is_active`);
}

/** One event for every machine of a node whose desired state is running. */
export async function noteOnNode(
  context: Context,
  options: { readonly nodeId: string; readonly level: EventLevel; readonly message: string },
): Promise<void> {
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, machine_id, level, message, created_at)
    SELECT 'ev-' || replace(gen_random_uuid()::text, '-', ''), tenant_id, id, ${options.level}, ${options.message},
      ${instantOf(context.clock.now())}::timestamptz
    FROM machines WHERE node_id = ${options.nodeId} AND is_active`);
}

/** One event for every fenced machine of these nodes. */
export async function noteOnFenced(
  context: Context,
  options: { readonly nodeIds: readonly string[]; readonly level: EventLevel; readonly message: string },
): Promise<void> {
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, machine_id, level, message, created_at)
    SELECT 'ev-' || replace(gen_random_uuid()::text, '-', ''), tenant_id, id, ${options.level}, ${options.message},
      ${instantOf(context.clock.now())}::timestamptz
    FROM machines WHERE node_id = ANY(${[...options.nodeIds]}::text[]) AND is_active AND fence = 'on'`);
}

export interface TimelinePage {
  readonly machineId: string;
  /** Only events after the one with this position. */
  readonly after: number | null;
  readonly limit: number;
}

/**
 * A machine's timeline, oldest first. A cursor whose event was purged starts at the beginning, because that event was
 * older.
 */
export function listTimeline(
  db: Queryable,
  { machineId, after, limit }: TimelinePage,
): Promise<readonly EventRecord[]> {
  return db.query(sql`
    SELECT position, id, level, message, ms(created_at) AS "createdAt" FROM tenant_events
    WHERE machine_id = ${machineId} AND (created_at, position) > (
      SELECT coalesce(max(created_at), '-infinity'), coalesce(max(position), 0) FROM tenant_events
      WHERE machine_id = ${machineId} AND position = ${after}::bigint)
    ORDER BY created_at, position LIMIT ${limit}`);
}

/** The newest events of a machine's timeline, oldest first. */
export function listNewest(
  db: Queryable,
  { machineId, limit }: Pick<TimelinePage, "machineId" | "limit">,
): Promise<readonly EventRecord[]> {
  return db.query(sql`
    SELECT position, id, level, message, ms(created_at) AS "createdAt" FROM (
      SELECT position, id, level, message, created_at FROM tenant_events WHERE machine_id = ${machineId}
      ORDER BY created_at DESC, position DESC LIMIT ${limit}::int) newest
    ORDER BY created_at, position`);
}

export interface TenantEventsPage {
  readonly tenantId: string;
  /** null: of all machines. */
  readonly machineId: string | null;
  /** Only events after the one with this position. */
  readonly after: number | null;
  readonly limit: number;
}

/**
 * A tenant's events in an order that can be followed: a reader that continues after its last event misses none. A
 * cursor whose event was purged starts at the beginning. Those of a machine are found by an index of theirs: IS NOT DISTINCT FROM keeps
 * PostgreSQL from combining it with that of the tenant, all of which it would read.
 */
export function listTenantEvents(db: Queryable, page: TenantEventsPage): Promise<readonly TenantEventRecord[]> {
  const { tenantId, machineId } = page;
  if (machineId === null)
    return db.query(sql`
      SELECT ${EVENT_COLUMNS} FROM tenant_events e WHERE e.tenant_id = ${tenantId} AND ${followed(page)}`);
  return db.query(sql`
    SELECT ${EVENT_COLUMNS} FROM tenant_events e
    WHERE e.machine_id = ${machineId} AND e.tenant_id IS NOT DISTINCT FROM ${tenantId} AND ${followed(page)}`);
}

const EVENT_COLUMNS = sql`
  e.position, e.id, e.machine_id AS "machineId", e.webhook_id AS "webhookId", e.level, e.message, ms(e.created_at) AS "createdAt"`;

/** From `e`, a row of tenant_events: it comes after the page's cursor, and no event can be inserted before it any more. */
const followed = ({ tenantId, after, limit }: TenantEventsPage): Statement => sql`
      e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
      AND (e.restored_rank, e.transaction_id, e.position) > (
        SELECT coalesce(max(restored_rank), 0), coalesce(max(transaction_id), '0'::xid8), coalesce(max(position), 0)
        FROM tenant_events WHERE tenant_id = ${tenantId} AND position = ${after}::bigint)
    ORDER BY e.restored_rank, e.transaction_id, e.position LIMIT ${limit}::int`;

/** Deletes old events. Returns how many. */
export function purgeEvents(context: Context, limit: number): Promise<number> {
  return context.db.execute(sql`
    DELETE FROM tenant_events WHERE position IN (
      SELECT position FROM tenant_events WHERE created_at < ${instantOf(context.clock.now() - EVENT_AGE_MAX_MS)}
      LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}

/** So many events are renumbered with a statement, which has a time limit. */
const REORDERED_AT_ONCE = 10_000;

/**
 * Runs when a server starts. A dump restored into another PostgreSQL has transaction numbers ahead of the new
 * cluster's: new events would sort before old ones, and old ones would not be read. This assigns all existing events of such a tenant
 * to present transactions, and their rank keeps their former order. Returns how many.
 *
 * A tenant's events are renumbered from the first one on, some at a time. After a crash the last one still shows that this has not ended,
 * and it begins again: those that were renumbered come first, as before.
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

/** Where an event was in the order before it was renumbered. Numbers as text, because they may be larger than 2^53. */
interface Place {
  readonly rank: string;
  readonly transaction: string;
  readonly position: string;
}

/** Renumbers the next events of a tenant from `before` + 1 on. Returns the place that the last of them had; undefined: there are none. */
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
