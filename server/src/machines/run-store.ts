/**
 * The statements that write machine_runs: when each boot of a machine ran, as its node reports it.
 *
 * Always:
 * - A run is inserted once and ended once, however often and in whatever order it is reported.
 * - A run is in a period in which its machine was its node's (machine_periods), and not after the report of
 *   it arrived. Runs of one machine do not overlap: a constraint refuses that. Within these bounds a run is
 *   recorded with its length, whatever the node's clock says (`place_run`).
 * - `writeRuns` resolves when its runs are on the disk, so that its caller may acknowledge them.
 *
 * A run may arrive with the state of its machine (`writeChanges` in store.ts, with RUNS_WRITTEN) or as the
 * node's own record (`writeRuns`). Whichever comes first inserts it.
 */
import type { Run } from "@flotilla/contract/link/link";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { ReportedRun } from "./change.ts";

/** The longest id of a boot. */
const BOOT_ID_CHARACTERS_MAX = 128;

/**
 * Writes the runs of the relation `run`. A run is inserted with its first report and ended with the report of
 * its end; an ended run does not change. An open run is not inserted while another run of the machine is
 * open: the end of that one, or a report of all open runs, is written first. An unseen one without length is
 * not inserted: with it a node ends what it may have reported of a boot and has not written down.
 */
export const RUNS_WRITTEN = sql`
    ended_run AS (
      UPDATE machine_runs r SET
        ended_at = CASE WHEN run.ended_at IS NOT NULL
          THEN greatest(r.started_at, least(run.recorded_at, r.left_at, run.ended_at + r.later_ms * interval '1 millisecond')) END,
        end_cause = run.end_cause, sequence = coalesce(run.sequence, r.sequence),
        egress_bytes = greatest(r.egress_bytes, run.egress_bytes), egress_at = run.recorded_at
      FROM run
      WHERE r.boot_id = run.boot_id AND r.node_id = run.node_id AND r.ended_at IS NULL
        AND (run.ended_at IS NOT NULL OR r.sequence IS NULL AND run.sequence IS NOT NULL OR run.egress_bytes > r.egress_bytes)
      RETURNING r.boot_id),
    inserted_run AS (
      INSERT INTO machine_runs (
        boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, later_ms, ended_at, end_cause, counted_until, sequence,
        egress_bytes, egress_at, recorded_at)
      SELECT boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, (at).started_at,
        round(1000 * extract(epoch FROM (at).started_at - started_at)), (at).ended_at, end_cause, (at).counted_until, sequence,
        egress_bytes, recorded_at, recorded_at
      FROM (
        SELECT n.*, place_run(boot_id, machine_id, node_id, started_at, ended_at, sequence, deleted_at, recorded_at) AS at
        FROM (
          SELECT * FROM run
          WHERE tenant_id IS NOT NULL AND NOT is_empty AND boot_id NOT IN (SELECT boot_id FROM ended_run)
            AND NOT EXISTS (SELECT FROM machine_runs known WHERE known.boot_id = run.boot_id)
          ORDER BY machine_id, sequence, started_at) n
        OFFSET 0) placed
      WHERE (at).started_at IS NOT NULL
      ON CONFLICT DO NOTHING
      RETURNING boot_id)`;

/** A run in the format of the statements, with the node's times. */
export function runWire({ bootId, startedAt, endedAt, cause, egressBytes }: ReportedRun): object {
  return {
    boot_id: bootId.slice(0, BOOT_ID_CHARACTERS_MAX),
    started_at: instantOf(startedAt),
    ended_at: instantOf(endedAt),
    end_cause: cause,
    egress_bytes: egressBytes,
  };
}

/**
 * Writes runs that a node recorded: each once, however often and in whatever order they are reported. Returns
 * the boots that were not written, because their machine never was that node's. Runs are locked in the order
 * of their machines, as by all statements here.
 *
 * Resolves when all these runs are on the disk, also those that another write recorded without waiting for
 * it: the message makes this transaction write to PostgreSQL's log even if no row changes, so its commit
 * flushes the log up to here.
 */
export async function writeRuns(context: Context, nodeId: string, runs: readonly Run[]): Promise<readonly string[]> {
  const rows = await tryRuns(context, nodeId, runs);
  // Another statement may have written a run of the same machine there at the same time.
  const left = new Set(rows.filter(({ isUnknown }) => !isUnknown).map(({ bootId }) => bootId));
  if (left.size > 0)
    await tryRuns(
      context,
      nodeId,
      runs.filter(({ bootId }) => left.has(bootId)),
    );
  return rows.filter(({ isUnknown }) => isUnknown).map(({ bootId }) => bootId);
}

/** Returns the boots that were not written and are not recorded. */
function tryRuns(
  context: Context,
  nodeId: string,
  runs: readonly Run[],
): Promise<readonly { readonly bootId: string; readonly isUnknown: boolean }[]> {
  const rows = runs.map((run) => ({ ...runWire(run), machine_id: run.machineId, sequence: run.sequence }));
  return context.db.query(sql`
    WITH run AS (
      SELECT r.boot_id, r.machine_id, ${nodeId}::text AS node_id, m.tenant_id, m.cpus, m.memory_mb, m.deleted_at,
        coalesce(r.started_at = r.ended_at AND r.end_cause = 'unseen', false) AS is_empty, r.started_at, r.ended_at, r.end_cause, r.egress_bytes, r.sequence,
        ${instantOf(context.clock.now())}::timestamptz AS recorded_at, log.written_at
      FROM (SELECT pg_logical_emit_message(true, 'flotilla', ''::text) AS written_at) log
      CROSS JOIN jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS r(
        boot_id text, machine_id text, started_at timestamptz, ended_at timestamptz, end_cause text, egress_bytes bigint, sequence bigint)
      LEFT JOIN machines m ON m.id = r.machine_id AND EXISTS (
        SELECT FROM machine_periods p WHERE p.machine_id = r.machine_id AND p.node_id = ${nodeId})
      ORDER BY r.machine_id, r.sequence),
    ${RUNS_WRITTEN}
    SELECT boot_id AS "bootId", tenant_id IS NULL AS "isUnknown" FROM run
    WHERE NOT is_empty AND boot_id NOT IN (SELECT boot_id FROM inserted_run)
      AND NOT EXISTS (SELECT FROM machine_runs known WHERE known.boot_id = run.boot_id)`);
}

/** Lists which of the boots have runs that ended. */
export async function listEndedBoots(db: Queryable, bootIds: readonly string[]): Promise<ReadonlySet<string>> {
  if (bootIds.length === 0) return new Set();
  const rows = await db.query<{ bootId: string }>(sql`
    SELECT boot_id AS "bootId" FROM machine_runs WHERE boot_id = ANY(${[...bootIds]}::text[]) AND ended_at IS NOT NULL`);
  return new Set(rows.map(({ bootId }) => bootId));
}

/** A run that arrived with an answer is followed by the node's own record within this time. */
const UNRECORDED_MS = 60_000;

/**
 * Ends open runs that their node does not know any more, because it lost its journal or the database was
 * restored. The node knows all runs that it recorded up to `sequence`; `bootIds` are the open ones.
 * `endedAt`: epoch milliseconds of the node's previous report. `isRestored`: it is the node's first report
 * since the database was restored, until which no answer brought a run: the node knows all that continue,
 * however short ago they were recorded. Returns how many were ended.
 */
export function endForgottenRuns(
  context: Context,
  node: {
    readonly id: string;
    readonly sequence: number;
    readonly bootIds: readonly string[];
    readonly endedAt: number;
    readonly isRestored: boolean;
  },
): Promise<number> {
  return context.db.execute(sql`
    WITH forgotten AS MATERIALIZED (
      SELECT boot_id FROM machine_runs
      WHERE node_id = ${node.id} AND ended_at IS NULL AND boot_id <> ALL(${node.bootIds}::text[])
        AND (sequence <= ${node.sequence}
          OR sequence IS NULL AND (${node.isRestored}::boolean OR recorded_at < ${instantOf(context.clock.now() - UNRECORDED_MS)}))
      ORDER BY machine_id, sequence FOR NO KEY UPDATE)
    UPDATE machine_runs SET ended_at = greatest(started_at, least(left_at, ${instantOf(node.endedAt)}::timestamptz)), end_cause = 'unseen'
    WHERE boot_id IN (SELECT boot_id FROM forgotten) AND ended_at IS NULL`);
}

/**
 * Ends the open runs of a node that leaves for good. `endedAt`: when it was last seen, in epoch milliseconds.
 */
export async function endRunsOfNode(db: Queryable, nodeId: string, endedAt: number): Promise<void> {
  await db.execute(sql`
    WITH open AS MATERIALIZED (
      SELECT boot_id FROM machine_runs WHERE node_id = ${nodeId} AND ended_at IS NULL
      ORDER BY machine_id, sequence FOR NO KEY UPDATE)
    UPDATE machine_runs SET ended_at = greatest(started_at, least(left_at, ${instantOf(endedAt)}::timestamptz)), end_cause = 'unseen'
    WHERE boot_id IN (SELECT boot_id FROM open) AND ended_at IS NULL`);
}

/**
 * Counts runs and machines of reporting nodes that do not agree: their reports are on the way, or there is a
 * fault.
 */
export async function countRunMismatches(
  db: Queryable,
): Promise<{ readonly openWithoutBoot: number; readonly bootWithoutRun: number }> {
  const row = await db.queryOne<{ openWithoutBoot: number; bootWithoutRun: number }>(sql`
    WITH reporting AS (SELECT id FROM nodes WHERE status NOT IN ('unreachable', 'revoked'))
    SELECT
      (SELECT count(*) FROM machine_runs r JOIN reporting n ON n.id = r.node_id
       LEFT JOIN machines m ON m.id = r.machine_id AND m.observed_boot_id = r.boot_id
         AND m.observed_state IN ('running', 'stopping')
       WHERE r.ended_at IS NULL AND m.id IS NULL)::int AS "openWithoutBoot",
      (SELECT count(*) FROM machines m JOIN reporting n ON n.id = m.node_id
       LEFT JOIN machine_runs r ON r.machine_id = m.id AND r.boot_id = m.observed_boot_id AND r.ended_at IS NULL
       WHERE m.is_active AND m.observed_state = 'running' AND r.boot_id IS NULL)::int AS "bootWithoutRun"`);
  return row ?? { openWithoutBoot: 0, bootWithoutRun: 0 };
}
