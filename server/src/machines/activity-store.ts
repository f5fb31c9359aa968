/**
 * The statement that writes activity in machines: machine_exec_minutes, machines.last_activity_at, events.
 */
import { eventDocument, insertEvents } from "../write-events.ts";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Context } from "../context.ts";
import { sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** A command that has ended. */
export interface EndedExec {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly exitCode: number;
  readonly durationMs: number;
}

export interface ActivityBatch {
  readonly activity: readonly {
    readonly machineId: string;
    /** Epoch milliseconds of the last activity. */
    readonly at: number;
    readonly execs: readonly EndedExec[];
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
  const done = inOrder.map(({ machineId, at }) => ({ machine_id: machineId, at: instantOf(at) }));
  const ended = inOrder.flatMap(({ machineId, execs }) =>
    execs.map(({ at, durationMs }) => ({ machine_id: machineId, at: instantOf(at), duration_ms: durationMs })),
  );
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
        AS d(machine_id text, at timestamptz)
      WHERE (SELECT count(*) FROM locked) >= 0),
    touched AS (
      UPDATE machines m SET last_activity_at = greatest(m.last_activity_at, d.at) FROM done d
      WHERE m.id = d.machine_id AND m.deleted_at IS NULL),
    counted AS (
      INSERT INTO machine_exec_minutes AS e (machine_id, tenant_id, minute, exec_count, exec_duration_ms)
      SELECT m.id, m.tenant_id, date_trunc('minute', billing_time(m.tenant_id, d.at), 'UTC'), count(*), sum(d.duration_ms)
      FROM jsonb_to_recordset(${JSON.stringify(ended)}::jsonb) AS d(machine_id text, at timestamptz, duration_ms bigint)
      JOIN machines m ON m.id = d.machine_id
      WHERE (SELECT count(*) FROM locked) >= 0
      GROUP BY 1, 2, 3 ORDER BY 1, 3
      ON CONFLICT (machine_id, minute) DO UPDATE SET
        exec_count = e.exec_count + excluded.exec_count,
        exec_duration_ms = e.exec_duration_ms + excluded.exec_duration_ms)
    ${insertEvents(sql`
      SELECT m.tenant_id, l.machine_id AS subject_id, l.event, l.at AS created_at
      FROM jsonb_to_recordset(${JSON.stringify(noted)}::jsonb) AS l(machine_id text, event jsonb, at timestamptz)
      JOIN machines m ON m.id = l.machine_id`)}`);
}
