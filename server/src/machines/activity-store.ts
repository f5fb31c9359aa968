/**
 * The statement that writes activity in machines: machine_exec_months, machines.last_activity_at, and events.
 */
import { eventDocument, insertEvents } from "../write-events.ts";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Context } from "../context.ts";
import { sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface ActivityBatch {
  readonly activity: readonly {
    readonly machineId: string;
    readonly at: number;
    readonly execCount: number;
    readonly durationMs: number;
  }[];
  readonly lines: readonly {
    readonly machineId: string;
    readonly event: NewEvent;
    readonly at: number;
  }[];
}

/**
 * Writes a batch with one statement. Machines that do not exist any more are left out. It locks machines in
 * the order of their ids, as changes of machines do: a deadlock would lose the batch.
 */
export async function writeActivity(context: Context, { activity, lines }: ActivityBatch): Promise<void> {
  const inOrder = activity.toSorted((a, b) => (a.machineId < b.machineId ? -1 : 1));
  const done = inOrder.map(({ machineId, at, execCount, durationMs }) => ({
    machine_id: machineId,
    at: instantOf(at),
    month: `${new Date(at).toISOString().slice(0, 7)}-01`,
    exec_count: execCount,
    duration_ms: durationMs,
  }));
  const noted = lines.map(({ machineId, event, at }) => ({
    machine_id: machineId,
    event: eventDocument(event),
    at: instantOf(at),
  }));
  await context.db.execute(sql`
    WITH locked AS (
      SELECT FROM machines WHERE id = ANY(${inOrder.map(({ machineId }) => machineId)}::text[]) AND deleted_at IS NULL
      ORDER BY id FOR NO KEY UPDATE),
    done AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(done)}::jsonb)
        AS d(machine_id text, at timestamptz, month date, exec_count bigint, duration_ms bigint)
      WHERE (SELECT count(*) FROM locked) >= 0),
    touched AS (
      UPDATE machines m SET last_activity_at = greatest(m.last_activity_at, d.at) FROM done d
      WHERE m.id = d.machine_id AND m.deleted_at IS NULL),
    counted AS (
      INSERT INTO machine_exec_months AS e (machine_id, tenant_id, month, exec_count, exec_duration_ms)
      SELECT d.machine_id, m.tenant_id, d.month, d.exec_count, d.duration_ms FROM done d JOIN machines m ON m.id = d.machine_id
      WHERE d.exec_count > 0
      ON CONFLICT (machine_id, month) DO UPDATE SET
        exec_count = e.exec_count + excluded.exec_count,
        exec_duration_ms = e.exec_duration_ms + excluded.exec_duration_ms)
    ${insertEvents(sql`
      SELECT m.tenant_id, l.machine_id AS subject_id, l.event, l.at AS created_at
      FROM jsonb_to_recordset(${JSON.stringify(noted)}::jsonb) AS l(machine_id text, event jsonb, at timestamptz)
      JOIN machines m ON m.id = l.machine_id`)}`);
}
