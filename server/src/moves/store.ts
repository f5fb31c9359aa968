/**
 * The statements of a move: holding a machine, changing the node that owns its disk, and releasing it.
 *
 * Always:
 * - Each is one statement, fenced by the machine's revision and by the move. A server that lost its
 *   operation, or whose move was abandoned, changes nothing.
 * - Each raises the machine's generation, so no earlier request to a node has an effect any more.
 * - A copy of the files on a node that does not own them has a row in machine_copies from before it is made
 *   until its node has confirmed that it is gone. A copy is removed only by its row, and never from the
 *   machine's owner or from the target of its move.
 */
import { eventJson, insertEvents } from "../write-events.ts";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { OperationStatus } from "@flotilla/contract/operations";
import { abandonedState } from "../machines/change.ts";
import { NOTHING_OBSERVED } from "../machines/observed.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { OperationRecord } from "../family.ts";
import type { Overcommit } from "../placement/place.ts";
import { isActive } from "../machines/state.ts";
import { announce, MACHINE_COLUMNS, fromRow, type MachineRow } from "../machines/store.ts";

/** Max machines that leave a node at a time: more would share its disk and link, and be stopped longer. */
export const MOVES_PER_NODE_MAX = 2;
/** Time limit of handing a machine over. */
const LIVE_MS = 30_000;
/** A move is begun by the clock of one server, and its parent by that of another. */
const CLOCKS_DIFFER_MS = 60 * 60_000;

/** Lets no other transaction begin a move of the machine until this one ends. */
export async function lockMoves(db: Queryable, machineId: string): Promise<void> {
  await db.execute(sql`SELECT pg_advisory_xact_lock(hashtext('machine move'), hashtext(${machineId}))`);
}

export interface HoldOptions {
  readonly moveId: string;
  /** The target. */
  readonly nodeId: string;
  /** Whether a machine that runs is suspended for the move. */
  readonly keepsMemory: boolean;
  /** Whether a machine that is to run is stopped when the move is complete. */
  readonly stops: boolean;
  /** Whether its node hands it over while it runs: the node receives `stopped` only if that fails. */
  readonly isLive: boolean;
  /** The ceilings of every node. */
  readonly overcommit: Overcommit;
}

/**
 * Holds a machine for a move: its node receives `stopped` from now on. A failed machine stays failed. `busy`:
 * MOVES_PER_NODE_MAX machines are leaving its node. `stale`: it has changed, or the target refuses it now.
 *
 * A machine that is to run there has its share of the target reserved until the move has ended.
 *
 * Both nodes are locked, in the order of their ids, so no machine begins to move to a node after its drain
 * has begun.
 */
export async function holdMachine(
  context: Context,
  machine: MachineRecord,
  { moveId, nodeId, keepsMemory, stops, isLive, overcommit }: HoldOptions,
): Promise<MachineRecord | "busy" | "stale"> {
  const now = instantOf(context.clock.now());
  const reconcileAt = instantOf(context.clock.now() + (isLive ? LIVE_MS : 0));
  const { desiredState, error } = abandonedState(machine);
  const row = await context.db.queryOne<MachineRow & { readonly isBusy: boolean }>(sql`
    WITH locked AS (
      SELECT id, status = 'ready' AND cordoned_at IS NULL AS admits FROM nodes
      WHERE id IN (${machine.nodeId}, ${nodeId}) ORDER BY id FOR NO KEY UPDATE),
    leaving AS (
      SELECT moves_from_locked(${machine.nodeId}) AS moves, bool_or(admits AND id = ${nodeId}) AND (NOT ${isActive(machine) && !stops}::boolean
        OR node_admits_start(${nodeId}, true, ${machine.cpus}, ${machine.memoryMb}, ${overcommit.cpus}::float8, ${overcommit.memory}::float8)) AS admits
      FROM locked),
    held AS (
      UPDATE machines SET
        move_id = ${moveId}, move_node_id = ${nodeId}, generation = generation + 1, desired_at = ${now},
        desired_state = ${desiredState}, error = ${error}, ready_at = NULL, reconcile_at = ${reconcileAt},
        keeps_memory = CASE WHEN desired_state = 'stopped' THEN keeps_memory ELSE ${keepsMemory}::boolean END,
        move_stops = ${stops && desiredState === "running"}::boolean,
        revision = revision + 1, updated_at = ${now}
      FROM leaving
      WHERE id = ${machine.id} AND revision = ${machine.revision} AND node_id = ${machine.nodeId} AND move_id IS NULL
        AND deleted_at IS NULL AND leaving.moves < ${MOVES_PER_NODE_MAX} AND leaving.admits
      RETURNING machines.*),
    copy AS (
      INSERT INTO machine_copies (machine_id, node_id) SELECT id, ${nodeId}::text FROM held ON CONFLICT DO NOTHING)
    SELECT l.moves >= ${MOVES_PER_NODE_MAX} AS "isBusy", ${MACHINE_COLUMNS}
    FROM leaving l LEFT JOIN held m ON true LEFT JOIN nodes n ON n.id = m.node_id`);
  if (row === undefined) return "stale";
  if ((row.id as string | null) === null) return row.isBusy ? "busy" : "stale";
  return await changed(context, row);
}

/** Records that a node will have files of a machine that still runs on another one. */
export async function noteCopy(
  db: Queryable,
  { machineId, nodeId }: { readonly machineId: string; readonly nodeId: string },
): Promise<void> {
  await db.execute(sql`
    INSERT INTO machine_copies (machine_id, node_id)
    SELECT id, ${nodeId}::text FROM machines WHERE id = ${machineId} AND node_id <> ${nodeId} AND deleted_at IS NULL
    ON CONFLICT DO NOTHING`);
}

export interface OwnerChange {
  readonly moveId: string;
  readonly hasMemory: boolean;
  /**
   * When the source paused the machine, in epoch milliseconds: its run there counts up to then. The source
   * reports the end, with what was sent. null: it has reported that.
   */
  readonly pausedAt: number | null;
}

const MEMORY_LOST = {
  type: "machine.memoryLost",
  data: { cause: "moveFailed", detail: "" },
} as const;

/**
 * Makes the target the owner of the machine's disk. From now on the machine runs only there, and the source's
 * copy is to be removed. `hasMemory`: the machine's memory is there too. undefined: the move does not hold
 * this revision of the machine.
 */
export async function changeOwner(
  context: Context,
  machine: MachineRecord,
  { moveId, hasMemory, pausedAt }: OwnerChange,
): Promise<MachineRecord | undefined> {
  const now = instantOf(context.clock.now());
  const pauseAt = instantOf(pausedAt);
  const nothing = NOTHING_OBSERVED;
  const row = await context.db.queryOne<MachineRow>(sql`
    WITH moved AS (
      UPDATE machines SET
        node_id = move_node_id, keeps_memory = keeps_memory AND desired_state = 'stopped' AND ${hasMemory}::boolean,
        desired_state = CASE WHEN move_stops THEN 'stopped' ELSE desired_state END, move_stops = false,
        move_id = NULL, move_node_id = NULL, moved_by = ${moveId}, generation = generation + 1,
        desired_at = ${now}, reconcile_at = ${now}, revision = revision + 1, updated_at = ${now}, ready_at = NULL,
        observed_state = ${nothing.observedState}, observed_generation = ${nothing.observedGeneration},
        observed_boot_id = NULL, observed_reason = NULL, observed_reason_code = NULL,
        observed_details = ${JSON.stringify(nothing.observedDetails)}::jsonb
      WHERE id = ${machine.id} AND revision = ${machine.revision} AND move_id = ${moveId} AND deleted_at IS NULL
      RETURNING *),
    noted AS (
      ${insertEvents(sql`
        SELECT tenant_id, id AS subject_id, ${eventJson(MEMORY_LOST)} AS event, ${now}::timestamptz AS created_at
        FROM moved WHERE ${machine.observedDetails.suspendedAt !== null && !hasMemory}::boolean`)}),
    left_run AS (
      UPDATE machine_runs r SET left_at = greatest(r.started_at,
        least(${now}::timestamptz, ${pauseAt}::timestamptz + r.later_ms * interval '1 millisecond'))
      FROM moved WHERE r.machine_id = moved.id AND r.node_id = ${machine.nodeId} AND r.ended_at IS NULL
        AND ${pauseAt}::timestamptz IS NOT NULL),
    arrived AS (
      DELETE FROM machine_copies c USING moved m WHERE c.machine_id = m.id AND c.node_id = m.node_id),
    left_behind AS (
      INSERT INTO machine_copies (machine_id, node_id) SELECT id, ${machine.nodeId}::text FROM moved ON CONFLICT DO NOTHING)
    SELECT ${MACHINE_COLUMNS} FROM moved m LEFT JOIN nodes n ON n.id = m.node_id`);
  return row && (await changed(context, row));
}

/** Whether a run of the machine on the node is recorded; `nodeId` null: on any. */
export async function hasRecordedRun(
  db: Queryable,
  { machineId, nodeId }: { readonly machineId: string; readonly nodeId: string | null },
): Promise<boolean> {
  const found = await db.queryOne(sql`
    SELECT boot_id FROM machine_runs WHERE machine_id = ${machineId} AND (${nodeId}::text IS NULL OR node_id = ${nodeId}) LIMIT 1`);
  return found !== undefined;
}

/**
 * Ends an incomplete move: the machine is where it was, and may start. undefined: the move does not hold it.
 */
export async function releaseMachine(
  context: Context,
  { machineId, moveId }: { readonly machineId: string; readonly moveId: string },
): Promise<MachineRecord | undefined> {
  const now = instantOf(context.clock.now());
  const row = await context.db.queryOne<MachineRow>(sql`
    WITH released AS (
      UPDATE machines SET
        move_id = NULL, move_node_id = NULL, generation = generation + 1, desired_at = ${now}, reconcile_at = ${now},
        keeps_memory = keeps_memory AND desired_state = 'stopped', move_stops = false,
        revision = revision + 1, updated_at = ${now}
      WHERE id = ${machineId} AND move_id = ${moveId} RETURNING *)
    SELECT ${MACHINE_COLUMNS} FROM released m LEFT JOIN nodes n ON n.id = m.node_id`);
  return row && (await changed(context, row));
}

async function changed(context: Context, row: MachineRow): Promise<MachineRecord> {
  await announce(context, row);
  return fromRow(row);
}

/**
 * Downtime of a running machine in a move, in milliseconds: between its last two runs, by its nodes' clocks,
 * whose difference from the server's is known. null: it did not run when the move began.
 */
export async function downtimeOf(
  db: Queryable,
  { machineId, bootId, since }: { readonly machineId: string; readonly bootId: string; readonly since: number },
): Promise<number | null> {
  const row = await db.queryOne<{ readonly from: number; readonly to: number }>(sql`
    WITH runs AS (
      SELECT r.boot_id,
        extract(epoch FROM r.started_at) * 1000 - r.later_ms - coalesce(n.clock_measured_ms, n.clock_ahead_ms, 0) AS started,
        extract(epoch FROM coalesce(r.ended_at, r.left_at)) * 1000 - r.later_ms - coalesce(n.clock_measured_ms, n.clock_ahead_ms, 0) AS ended
      FROM machine_runs r LEFT JOIN nodes n ON n.id = r.node_id WHERE r.machine_id = ${machineId})
    SELECT max(before.ended)::float8 AS from, now.started::float8 AS to
    FROM runs now, runs before WHERE now.boot_id = ${bootId} AND before.boot_id <> now.boot_id GROUP BY now.started`);
  if (row === undefined || (row.from as number | null) === null || row.from < since) return null;
  return Math.max(0, Math.round(row.to - row.from));
}

/** A move that another operation needs. */
export interface ChildMove {
  readonly id: string;
  readonly machineId: string;
  readonly status: OperationStatus;
  readonly error: string | null;
  /** Epoch milliseconds. */
  readonly updatedAt: number;
  /** It changed the machine's owner, whatever came after that. */
  readonly hasMoved: boolean;
}

/** The moves that an operation has begun, in this order. */
export function listChildMoves(
  db: Queryable,
  parent: Pick<OperationRecord, "id" | "tenantId" | "createdAt">,
): Promise<readonly ChildMove[]> {
  return db.query<ChildMove>(sql`
    SELECT o.id, o.resource_id AS "machineId", o.status, o.error,
      ms(o.updated_at) AS "updatedAt",
      o.status = 'succeeded' OR m.moved_by IS NOT DISTINCT FROM o.id AS "hasMoved"
    FROM operations o LEFT JOIN machines m ON m.id = o.resource_id
    WHERE o.tenant_id = ${parent.tenantId} AND o.created_at >= ${instantOf(parent.createdAt - CLOCKS_DIFFER_MS)}
      AND o.kind = 'machine move' AND o.input ->> 'parentId' = ${parent.id}
    ORDER BY o.created_at, o.id`);
}

/**
 * Selects the moves that have ended: no server continues them. Rows outlive their moves, so one without a row
 * has ended.
 */
export async function listEndedMoves(db: Queryable, moveIds: readonly string[]): Promise<readonly string[]> {
  const rows = await db.query<{ readonly id: string }>(sql`
    SELECT given.id FROM unnest(${moveIds}::text[]) AS given (id)
    WHERE NOT EXISTS (SELECT FROM operations o WHERE o.id = given.id AND o.status = 'running')`);
  return rows.map(({ id }) => id);
}

/** Whether machines of other nodes are being moved to this one. */
export async function hasArriving(db: Queryable, nodeId: string): Promise<boolean> {
  const row = await db.queryOne(sql`
    SELECT 1 FROM machines WHERE move_node_id = ${nodeId} AND move_id IS NOT NULL AND deleted_at IS NULL LIMIT 1`);
  return row !== undefined;
}

/** A copy that is to be removed from a node. */
export interface ObsoleteCopy {
  readonly machineId: string;
  readonly nodeId: string;
  readonly address: string;
  /** Generation of the machine's row: higher than that of every request about the copy. */
  readonly generation: number;
}

/** Columns of `c`, a row of machine_copies, `m`, its machine, and `n`, its node. */
const COPY_COLUMNS = sql`c.machine_id AS "machineId", c.node_id AS "nodeId", n.address, m.generation`;
/** Neither the machine's owner has it, nor the target of its move. */
const IS_OBSOLETE = sql`m.node_id <> c.node_id AND m.move_node_id IS DISTINCT FROM c.node_id`;

/** Copies that are to be removed now: of one machine, or of some machines on one node. */
export function listObsoleteCopies(
  db: Queryable,
  { machineIds, nodeId }: { readonly machineIds: readonly string[]; readonly nodeId: string | null },
): Promise<readonly ObsoleteCopy[]> {
  return db.query<ObsoleteCopy>(sql`
    SELECT ${COPY_COLUMNS}
    FROM machine_copies c JOIN machines m ON m.id = c.machine_id JOIN nodes n ON n.id = c.node_id
    WHERE c.machine_id = ANY(${machineIds}::text[]) AND (${nodeId}::text IS NULL OR c.node_id = ${nodeId}::text)
      AND ${IS_OBSOLETE}`);
}

/** Copies that are to be removed now, from nodes that report. */
export const listRemovableCopies = (db: Queryable, limit: number): Promise<readonly ObsoleteCopy[]> =>
  db.query<ObsoleteCopy>(sql`
    SELECT ${COPY_COLUMNS}
    FROM machine_copies c JOIN machines m ON m.id = c.machine_id JOIN nodes n ON n.id = c.node_id
    WHERE n.status NOT IN ('unreachable', 'revoked') AND ${IS_OBSOLETE}
    ORDER BY c.machine_id, c.node_id LIMIT ${limit}`);

/** The node has confirmed that the copy is gone. */
export async function forgetCopy(db: Queryable, { machineId, nodeId }: ObsoleteCopy): Promise<void> {
  await db.execute(sql`
    DELETE FROM machine_copies c WHERE c.machine_id = ${machineId} AND c.node_id = ${nodeId}
      AND NOT EXISTS (SELECT FROM machines m WHERE m.id = c.machine_id AND m.move_node_id = c.node_id)`);
}
