/**
 * Statements over the timeline of machines and over what was done in them: machine_events, machine_exec_months and
 * machines.last_activity_at.
 */
import type { NodeEvent } from "@flotilla/contract/link";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { EventRecord } from "./view.ts";

/** Lines of the timeline are kept this long. */
const EVENT_AGE_MAX_MS = 30 * 24 * 60 * 60_000;

export interface ActivityBatch {
  readonly activity: readonly {
    readonly machineId: string;
    readonly at: number;
    readonly execCount: number;
    readonly durationMs: number;
  }[];
  readonly lines: readonly {
    readonly machineId: string;
    readonly level: EventLevel;
    readonly message: string;
    readonly at: number;
  }[];
}

/** One statement for everything that happened since the last one. Machines that are gone are left out. */
export async function writeActivity(context: Context, { activity, lines }: ActivityBatch): Promise<void> {
  const done = activity.map(({ machineId, at, execCount, durationMs }) => ({
    machine_id: machineId,
    at: instantOf(at),
    month: `${new Date(at).toISOString().slice(0, 7)}-01`,
    exec_count: execCount,
    duration_ms: durationMs,
  }));
  const noted = lines.map(({ machineId, level, message, at }) => ({
    id: context.ids.make("event"),
    machine_id: machineId,
    level,
    message,
    at: instantOf(at),
  }));
  await context.db.execute(sql`
    WITH done AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(done)}::jsonb)
        AS d(machine_id text, at timestamptz, month date, exec_count bigint, duration_ms bigint)),
    touched AS (
      UPDATE machines m SET last_activity_at = greatest(m.last_activity_at, d.at) FROM done d
      WHERE m.id = d.machine_id AND m.deleted_at IS NULL),
    counted AS (
      INSERT INTO machine_exec_months AS e (machine_id, month, exec_count, exec_duration_ms)
      SELECT d.machine_id, d.month, d.exec_count, d.duration_ms FROM done d JOIN machines m ON m.id = d.machine_id
      WHERE d.exec_count > 0
      ON CONFLICT (machine_id, month) DO UPDATE SET
        exec_count = e.exec_count + excluded.exec_count,
        exec_duration_ms = e.exec_duration_ms + excluded.exec_duration_ms)
    INSERT INTO machine_events (id, machine_id, level, message, created_at)
    SELECT l.id, l.machine_id, l.level, l.message, l.at
    FROM jsonb_to_recordset(${JSON.stringify(noted)}::jsonb)
      AS l(id text, machine_id text, level text, message text, at timestamptz)
    JOIN machines m ON m.id = l.machine_id`);
}

/** What a node saw happen to machines that are on it; each is written once, however often it is reported. */
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
    INSERT INTO machine_events (id, machine_id, level, message, created_at, node_id, agent_boot_id, node_sequence)
    SELECT e.id, e.machine_id, e.level, e.message, e.at, ${nodeId}, ${agentBootId}, e.sequence
    FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
      AS e(id text, machine_id text, level text, message text, at timestamptz, sequence bigint)
    JOIN machines m ON m.id = e.machine_id AND m.node_id = ${nodeId}
    ORDER BY e.sequence
    ON CONFLICT (node_id, agent_boot_id, node_sequence) WHERE node_id IS NOT NULL DO NOTHING`);
}

/** One line on the timeline of every machine of a node that is meant to run. */
export async function noteOnNode(
  context: Context,
  options: { readonly nodeId: string; readonly level: EventLevel; readonly message: string },
): Promise<void> {
  await context.db.execute(sql`
    INSERT INTO machine_events (id, machine_id, level, message, created_at)
    SELECT 'ev-' || replace(gen_random_uuid()::text, '-', ''), id, ${options.level}, ${options.message},
      ${instantOf(context.clock.now())}::timestamptz
    FROM machines WHERE node_id = ${options.nodeId} AND is_active`);
}

export interface EventPage {
  readonly machineId: string;
  /** Only lines after the one with this sequence. */
  readonly after: number | null;
  readonly limit: number | null;
}

/**
 * Oldest first, by when it happened. A line that is written late stands where it belongs, so a reader that goes on from
 * a line may not see one of the seconds before it.
 */
export function listEvents(
  db: Queryable,
  { machineId, after, limit }: EventPage,
): Promise<readonly (EventRecord & { readonly sequence: number })[]> {
  return db.query(sql`
    SELECT sequence, id, level, message, created_at AS "createdAt" FROM machine_events
    WHERE machine_id = ${machineId} AND (created_at, sequence) > (
      -- A line that is not there any more was older than all that are.
      SELECT coalesce(max(created_at), '-infinity'), coalesce(max(sequence), 0) FROM machine_events
      WHERE machine_id = ${machineId} AND sequence = ${after}::bigint)
    ORDER BY created_at, sequence LIMIT ${limit}`);
}

/** Forgets old lines. Returns how many there were. */
export function purgeEvents(context: Context, limit: number): Promise<number> {
  return context.db.execute(sql`
    DELETE FROM machine_events WHERE sequence IN (
      SELECT sequence FROM machine_events WHERE created_at < ${instantOf(context.clock.now() - EVENT_AGE_MAX_MS)}
      LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}
