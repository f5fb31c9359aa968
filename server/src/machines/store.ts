/**
 * Every statement over the rows of machines.
 *
 * Always:
 * - What users see is changed in one of seven ways: `writeChanges` (fenced by the revision, for starts, stops
 *   and reports, with timeline and runs in the same statement), `removeMachine` (a delete, which needs no
 *   fence because it always wins), `updateDescription`, activity-store.ts (activity, outside the fence),
 *   fence-store.ts (whether it may be replaced), moves/store.ts (the node that owns it, fenced by the
 *   revision), and branches/ (store.ts: the point; adopt-store.ts: the name, url and ports of a source).
 * - A change of anything that users see, except the last activity, raises the revision and is announced,
 *   because machine-cache.ts answers reads. The last activity is passed to the cache of the server that
 *   writes it.
 * - A ceiling is checked in the statement that uses it up, under a lock on the row of the tenant, or of the
 *   node.
 * - A start, a stop and a report change nothing of the description of a machine; a delete clears the parts
 *   that may be secret.
 */
import { eventDocument, eventJson, insertEvents } from "../write-events.ts";
import type { Disruption, MachineEnd } from "@flotilla/contract/machines";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { Change, MutableMachine } from "./change.ts";
import { type ObservedDetails, storedDetails } from "./observed.ts";
import { ASSIGNED, CHANGING_TYPED, changingRow, NAMES, SELECTED, TYPED, wholeRow } from "./columns.ts";
import { RUNS_WRITTEN, runWire } from "./run-store.ts";
import type { MachineRecord, MachineName } from "./record.ts";

/** Deleted machines are kept this long: their usage stays readable. */
const TOMBSTONE_MS = 30 * 24 * 60 * 60_000;

/** A MachineRecord with the fields of its report that are stored. */
export type MachineRow = Omit<MachineRecord, "observedDetails"> & {
  readonly observedDetails: Partial<ObservedDetails>;
};

/** The MachineNodeStatus of `n`, the row of a node. */
const NODE_STATUS = sql`CASE WHEN n.status = 'unreachable' AND n.maintenance_at IS NOT NULL THEN 'maintenance' ELSE n.status END`;

/** The label of the host of `m`, a row of machines. An id is one too (migrations/0003_hosts.sql). */
const HOST_NAME = sql`coalesce((SELECT h.name FROM hosts h WHERE h.subject_id = m.id AND h.freed_at IS NULL), m.id)`;

/** Columns of `m`, a row of machines, and `n`, the row of its node. */
export const MACHINE_COLUMNS = sql`
  ${SELECTED}, ${HOST_NAME} AS "hostName", ${NODE_STATUS} AS "nodeStatus", n.address AS "nodeAddress"`;

export const fromRow = (row: MachineRow): MachineRecord => ({
  ...row,
  observedDetails: storedDetails(row.observedDetails),
});

/** A machine of the tenant that is not deleted. */
export async function findMachine(
  db: Queryable,
  { tenantId, id }: { readonly tenantId: string; readonly id: string },
): Promise<MachineRecord | undefined> {
  const row = await db.queryOne<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m LEFT JOIN nodes n ON n.id = m.node_id
    WHERE m.id = ${id} AND m.tenant_id = ${tenantId} AND m.deleted_at IS NULL`);
  return row && fromRow(row);
}

/** Any machine, also one that was deleted in the last 30 days. */
export async function findAnyMachine(db: Queryable, id: string): Promise<MachineRecord | undefined> {
  const row = await db.queryOne<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m LEFT JOIN nodes n ON n.id = m.node_id WHERE m.id = ${id}`);
  return row && fromRow(row);
}

/** Finds the machines with these ids, also those deleted in the last 30 days, in any order. */
export async function findAnyMachines(db: Queryable, ids: readonly string[]): Promise<readonly MachineRecord[]> {
  const rows = await db.query<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m LEFT JOIN nodes n ON n.id = m.node_id WHERE m.id = ANY(${ids}::text[])`);
  return rows.map(fromRow);
}

/**
 * Whether something of `m`, a row of machines, may be left on its node. Most deleted machines have left
 * nothing; the index machines_of_node skips them in a statement that uses these terms.
 */
export const MAY_BE_THERE = sql`
  (m.deleted_at IS NULL OR m.observed_state <> 'absent' OR m.observed_generation <> m.generation)`;

/** The machines that are or may be on a node, also deleted ones. */
export async function listMachinesOfNode(db: Queryable, nodeId: string): Promise<readonly MachineRecord[]> {
  const rows = await db.query<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m JOIN nodes n ON n.id = m.node_id
    WHERE m.node_id = ${nodeId} AND ${MAY_BE_THERE} AND NOT (m.deleted_at IS NOT NULL AND m.observed_state = 'absent')`);
  return rows.map(fromRow);
}

/** No request to a node is under way for longer. */
const REQUEST_MS_MAX = 10 * 60_000;

/**
 * Deleted machines that a node may still have, or may begin: a request from before the deletion may be late,
 * and a new agent does not remember what the one before has removed. A fenced machine begins only after such
 * an answer. MATERIALIZED, because otherwise PostgreSQL would read all machines in the order of their ids
 * until it has found `limit`.
 */
export const listAbsentOfNode = (
  db: Queryable,
  nodeId: string,
  { now, limit }: { readonly now: number; readonly limit: number },
): Promise<readonly { readonly machineId: string; readonly generation: number }[]> =>
  db.query(sql`
    WITH absent AS MATERIALIZED (
      SELECT m.id, m.generation FROM machines m
      WHERE m.node_id = ${nodeId} AND m.desired_state = 'absent' AND ${MAY_BE_THERE}
      UNION
      SELECT m.id, m.generation FROM machines m
      WHERE m.node_id = ${nodeId} AND m.desired_state = 'absent' AND m.fence IS NOT NULL
        AND m.deleted_at > ${instantOf(now - REQUEST_MS_MAX)}::timestamptz)
    SELECT id AS "machineId", generation FROM absent ORDER BY id LIMIT ${limit}`);

/** The machines whose disks are on a node: those that have a node and were not deleted. */
export const listDisksOfNode = (
  db: Queryable,
  nodeId: string,
): Promise<readonly { readonly id: string; readonly name: string | null; readonly tenantId: string }[]> =>
  db.query(sql`
    SELECT m.id, m.name, m.tenant_id AS "tenantId" FROM machines m
    WHERE m.node_id = ${nodeId} AND ${MAY_BE_THERE} AND m.deleted_at IS NULL ORDER BY m.id`);

/** Machines of a node that apps own: their apps make others elsewhere, instead of a move. */
export const listInstancesOfNode = async (db: Queryable, nodeId: string): Promise<ReadonlySet<string>> => {
  const rows = await db.query<{ id: string }>(sql`
    SELECT m.id FROM machines m JOIN machine_owners o ON o.machine_id = m.id AND o.kind = 'app' WHERE m.node_id = ${nodeId}`);
  return new Set(rows.map(({ id }) => id));
};

/** Settles the deleted machines of a node that leaves: they do not refer to it any more and need no work. */
export async function releaseDeletedMachines(db: Queryable, nodeId: string): Promise<void> {
  await db.execute(sql`
    UPDATE machines SET node_id = NULL, observed_state = 'absent', reconcile_at = NULL, revision = revision + 1
    WHERE node_id = ${nodeId} AND deleted_at IS NOT NULL`);
}

export async function listMachinesOfNodeById(
  db: Queryable,
  nodeId: string,
  ids: readonly string[],
): Promise<readonly MachineRecord[]> {
  const rows = await db.query<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m JOIN nodes n ON n.id = m.node_id
    WHERE m.node_id = ${nodeId} AND m.id = ANY(${ids})`);
  return rows.map(fromRow);
}

export interface ListPosition {
  readonly createdAt: number;
  readonly id: string;
}

export interface ListQuery {
  readonly tenantId: string;
  /** All of them must match. */
  readonly labels: Readonly<Record<string, string>>;
  readonly after: ListPosition | null;
  readonly limit: number | null;
}

/** The columns that show whether a cached machine is current. */
export type ListedMachine = Pick<MachineRecord, "id" | "revision" | "lastActivityAt" | "nodeStatus" | "nodeAddress">;

/** Newest first, without instances of apps. The full rows are much larger, and mostly cached. */
export const listMachines = (
  db: Queryable,
  { tenantId, labels, after, limit }: ListQuery,
): Promise<readonly ListedMachine[]> =>
  db.query(sql`
    SELECT m.id, m.revision, ms(m.last_activity_at) AS "lastActivityAt", ${NODE_STATUS} AS "nodeStatus",
      n.address AS "nodeAddress"
    FROM machines m LEFT JOIN nodes n ON n.id = m.node_id
    WHERE m.tenant_id = ${tenantId} AND m.deleted_at IS NULL AND m.labels @> ${JSON.stringify(labels)}::jsonb
      AND NOT EXISTS (SELECT 1 FROM machine_owners o WHERE o.machine_id = m.id AND o.kind = 'app')
      AND (${after?.id ?? null}::text IS NULL
           OR (m.created_at, m.id) < (${instantOf(after?.createdAt)}::timestamptz, ${after?.id ?? null}::text))
    ORDER BY m.created_at DESC, m.id DESC LIMIT ${limit}`);

/** Finds those of the machines that are the tenant's and not deleted, in any order. */
export async function findMachines(
  db: Queryable,
  { tenantId, ids }: { readonly tenantId: string; readonly ids: readonly string[] },
): Promise<readonly MachineRecord[]> {
  const rows = await db.query<MachineRow>(sql`
    SELECT ${MACHINE_COLUMNS} FROM machines m LEFT JOIN nodes n ON n.id = m.node_id
    WHERE m.id = ANY(${ids}::text[]) AND m.tenant_id = ${tenantId} AND m.deleted_at IS NULL`);
  return rows.map(fromRow);
}

/** `nameTaken`: also when the id is taken, because the same request made the machine before. */
export type Insertion = "inserted" | "overCount" | "overDisk" | "nameTaken";

/**
 * Inserts a machine that has never been started, unless its tenant has `maxMachines` already (null: it is not
 * counted) or uses all the disk of its plan. One round trip.
 */
export async function insertMachine(
  context: Context,
  machine: MachineRecord,
  maxMachines: number | null,
): Promise<Insertion> {
  const row = await context.db.queryOne<{ isPermitted: boolean; hasDisk: boolean; id: string | null }>(sql`
    WITH permitted AS (
      SELECT coalesce(held_machines_locked(${machine.tenantId}) < ${maxMachines}::int, true) AS yes,
        totals_allow_disk_locked(${machine.tenantId}, ${machine.diskGb}::int) AS has_disk),
    inserted AS (
      INSERT INTO machines (${NAMES})
      SELECT r.* FROM permitted, jsonb_to_record(${JSON.stringify(wholeRow(machine))}::jsonb) AS r(${TYPED})
      WHERE yes AND has_disk
      ON CONFLICT DO NOTHING
      RETURNING id),
    noted AS (
      ${insertEvents(sql`
        SELECT ${machine.tenantId}::text AS tenant_id, id AS subject_id, ${eventJson({ type: "machine.created", data: {} })} AS event,
          ${instantOf(machine.createdAt)}::timestamptz AS created_at FROM inserted`)})
    SELECT yes AS "isPermitted", has_disk AS "hasDisk", (SELECT id FROM inserted) AS id FROM permitted`);
  if (row?.isPermitted !== true) return "overCount";
  if (!row.hasDisk) return "overDisk";
  return row.id === null ? "nameTaken" : "inserted";
}

/**
 * `disk`: the write resolves when it is on the disk. `later`: it may resolve before that, and a crash of
 * PostgreSQL may undo it until the next commit that waits for the disk. Only for what a node reports again,
 * if the caller makes such a commit before it answers.
 */
export type Durability = "disk" | "later";

export interface WriteOptions {
  /** Default: disk. */
  readonly durability?: Durability;
  /**
   * Max wait for each lock, in milliseconds; then nothing is written and the database's error is thrown.
   * Default: the time limit of a statement.
   */
  readonly lockWaitMs?: number;
}

/**
 * Writes changes whose machine still has the revision they were made from, each with its timeline and runs,
 * in one statement; each machine at most once. Returns the written machines; the others are stale, over their
 * ceiling or deleted.
 *
 * Several starts of one tenant, or on one node, are counted one after the other: the functions that check
 * ceilings are volatile, so they see the rows that the statement has written before. A trigger writes the
 * hold of a start on a budget at the end of the statement, so it must have at most one start of a tenant
 * whose budget is checked. It locks tenants, then nodes, then machines, each in the order of their ids: two
 * such statements cannot deadlock.
 */
export async function writeChanges(
  context: Context,
  changes: readonly Change[],
  { durability = "disk", lockWaitMs = 0 }: WriteOptions = {},
): Promise<ReadonlyMap<string, MachineRecord>> {
  if (changes.length === 0) return new Map();
  const now = instantOf(context.clock.now());
  const inOrder = changes.toSorted((a, b) => (a.next.id < b.next.id ? -1 : 1));
  const rows = await context.db.query<MachineRow>(sql`
    WITH settings AS (
      SELECT CASE WHEN ${durability === "later"}::boolean THEN set_config('synchronous_commit', 'off', true) END,
        CASE WHEN ${lockWaitMs}::int > 0 THEN set_config('lock_timeout', ${String(lockWaitMs)}, true) END),
    locked_tenant AS (
      SELECT FROM tenants WHERE id = ANY(${tenantsToLock(changes)}::text[]) AND (SELECT count(*) FROM settings) = 1
      ORDER BY id FOR NO KEY UPDATE),
    locked_node AS (
      SELECT FROM nodes WHERE id = ANY(${nodesToLock(changes)}::text[]) AND (SELECT count(*) FROM locked_tenant) >= 0
      ORDER BY id FOR NO KEY UPDATE),
    change AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(inOrder.map(wire))}::jsonb) AS c(
        id text, revision int, ${CHANGING_TYPED}, active_max int, is_budgeted boolean, suspends boolean, reserves boolean, is_new boolean,
        cpu_overcommit float8, memory_overcommit float8, started_by text, runs jsonb, timeline jsonb)
      WHERE (SELECT count(*) FROM settings) = 1 AND (SELECT count(*) FROM locked_tenant) >= 0 AND (SELECT count(*) FROM locked_node) >= 0),
    written AS (
      UPDATE machines m SET
        ${ASSIGNED}, started_by = coalesce(c.started_by, m.started_by), revision = m.revision + 1, updated_at = ${now}
      FROM change c
      WHERE m.id = c.id AND m.revision = c.revision
        AND CASE WHEN c.active_max IS NULL THEN true
          ELSE tenant_admits_start(m.tenant_id, c.active_max, m.cpus, m.memory_mb) END
        AND CASE WHEN c.suspends THEN totals_allow_disk_locked(m.tenant_id, (m.memory_mb + 1023) / 1024) ELSE true END
        AND CASE WHEN c.is_budgeted THEN budget_allows_start_locked(m.tenant_id, m.id, m.cpus, m.memory_mb, ${now}::timestamptz) ELSE true END
        AND CASE WHEN c.reserves
          THEN CASE WHEN m.move_id IS NULL
            THEN node_admits_start(c.node_id, c.is_new, m.cpus, m.memory_mb, c.cpu_overcommit, c.memory_overcommit)
            ELSE nodes_admit_start_in_move(m.id, m.node_id, m.move_node_id, m.cpus, m.memory_mb, c.cpu_overcommit, c.memory_overcommit) END
          ELSE true END
      RETURNING m.*, c.runs, c.timeline),
    run AS (
      SELECT r.boot_id, w.id AS machine_id, w.node_id, w.tenant_id, w.cpus, w.memory_mb, w.deleted_at,
        coalesce(r.started_at = r.ended_at AND r.end_cause = 'unseen', false) AS is_empty,
        r.started_at, r.ended_at, r.end_cause, r.egress_bytes, NULL::bigint AS sequence,
        ${now}::timestamptz AS recorded_at
      FROM written w, jsonb_to_recordset(w.runs) AS r(boot_id text, started_at timestamptz, ended_at timestamptz, end_cause text, egress_bytes bigint)),
    ${RUNS_WRITTEN},
    noted AS (
      ${insertEvents(sql`
        SELECT w.tenant_id, w.id AS subject_id, entry.event, ${now}::timestamptz AS created_at
        FROM written w, jsonb_array_elements(w.timeline) AS entry(event)`)})
    SELECT ${MACHINE_COLUMNS} FROM written m LEFT JOIN nodes n ON n.id = m.node_id`);
  const written = new Map(rows.map((row) => [row.id, fromRow(row)]));
  await Promise.all([...written.values()].map((machine) => announce(context, machine)));
  return written;
}

/** Tenants whose ceilings are checked. */
const tenantsToLock = (changes: readonly Change[]): readonly string[] => [
  ...new Set(
    changes.flatMap(({ start, suspend }) => {
      const isChecked = start !== undefined && (start.activeMax !== null || start.isBudgeted);
      return [...(isChecked ? [start.tenantId] : []), ...(suspend === undefined ? [] : [suspend.tenantId])];
    }),
  ),
];

/** Nodes whose ceilings are checked, except by a start in a move, which locks both of its nodes in order. */
const nodesToLock = (changes: readonly Change[]): readonly string[] => [
  ...new Set(
    changes.flatMap(({ next: { nodeId, moveId }, start }) => {
      const overcommit = start?.reservation?.overcommit;
      const hasCeiling = overcommit !== undefined && (overcommit.cpus !== null || overcommit.memory !== null);
      return hasCeiling && nodeId !== null && moveId === null ? [nodeId] : [];
    }),
  ),
];

function wire({ next, timeline, runs = [], start, suspend }: Change): object {
  const reservation = start?.reservation ?? null;
  return {
    id: next.id,
    revision: next.revision,
    ...changingRow(next),
    active_max: start?.activeMax ?? null,
    is_budgeted: start?.isBudgeted ?? false,
    suspends: suspend !== undefined,
    reserves: reservation !== null,
    is_new: reservation?.isNew ?? false,
    cpu_overcommit: reservation?.overcommit.cpus ?? null,
    memory_overcommit: reservation?.overcommit.memory ?? null,
    started_by: start?.startedBy ?? null,
    runs: runs.map(runWire),
    timeline: timeline.map((event) => eventDocument(event)),
  };
}

/**
 * Deletes a machine in any state: it is hidden immediately, its name is free and it is not counted any more.
 * Data that may be secret (environment, command, sessions, tokens, share link) is cleared. The node is called
 * afterwards. Its runs count up to now, or up to its node's last report if the node is unreachable or a fence
 * may have ended the VM since. `revision`: delete only if it has this revision. `ifUnused`: only if it has
 * never run. Returns the deleted machine, or undefined when there is none.
 */
export async function removeMachine(context: Context, options: Removal): Promise<MachineRecord | undefined> {
  const removed = await removeMachineIn(context.db, context.clock.now(), options);
  if (removed !== undefined) await announce(context, removed);
  return removed;
}

interface Removal extends MachineName {
  readonly revision?: number;
  readonly ifUnused?: boolean;
}

/** As `removeMachine`, in a transaction, after which the caller announces it. */
export async function removeMachineIn(db: Queryable, at: number, options: Removal): Promise<MachineRecord | undefined> {
  const now = instantOf(at);
  const row = await db.queryOne<MachineRow>(sql`
    WITH gone AS (
      UPDATE machines SET
        desired_state = 'absent', generation = generation + 1, desired_at = ${now}, deleted_at = ${now}, error = NULL,
        move_id = NULL, move_node_id = NULL, ready_at = NULL, revision = revision + 1, updated_at = ${now}, env = '{}', command = NULL, secret_env = NULL, health = NULL, hooks = NULL,
        reconcile_at = CASE WHEN node_id IS NULL THEN NULL ELSE ${now}::timestamptz END
      WHERE id = ${options.id} AND tenant_id = ${options.tenantId} AND deleted_at IS NULL
        AND (${options.revision ?? null}::int IS NULL OR revision = ${options.revision ?? null}::int)
        AND (NOT ${options.ifUnused ?? false}::boolean
          OR NOT has_run AND NOT EXISTS (SELECT FROM machine_runs r WHERE r.machine_id = machines.id))
      RETURNING *),
    uncounted AS (
      UPDATE machine_runs r SET counted_until = greatest(r.started_at, least(r.counted_until, ${now}::timestamptz,
        CASE WHEN n.status IN ('unreachable', 'revoked') OR gone.fence IS NOT NULL
          THEN n.last_heartbeat_at - n.last_late_ms * interval '1 ms' END))
      FROM gone, nodes n WHERE r.machine_id = gone.id AND r.ended_at IS NULL AND n.id = r.node_id),
    sessions AS (DELETE FROM machine_sessions WHERE machine_id IN (SELECT id FROM gone)),
    tokens AS (DELETE FROM connect_tokens WHERE machine_id IN (SELECT id FROM gone)),
    shares AS (DELETE FROM machine_shares WHERE machine_id IN (SELECT id FROM gone)),
    noted AS (
      ${insertEvents(sql`
        SELECT tenant_id, id AS subject_id, ${eventJson({ type: "machine.deleted", data: {} })} AS event,
          ${now}::timestamptz AS created_at FROM gone`)})
    SELECT ${MACHINE_COLUMNS} FROM gone m LEFT JOIN nodes n ON n.id = m.node_id`);
  return row && fromRow(row);
}

/** What may be changed of a machine, each alone; null: it stays as it is. */
export interface DescriptionChange {
  readonly disruption: Disruption | null;
  readonly isBranchable: boolean | null;
  readonly ttlSeconds: number | null;
  readonly atEnd: MachineEnd | null;
  /** All of its labels. */
  readonly labels: Readonly<Record<string, string>> | null;
}

/** Changes what may be changed of a machine; null: it stays as it is. undefined: there is no such machine. */
export async function updateDescription(
  context: Context,
  { tenantId, id, disruption, isBranchable, ttlSeconds, atEnd, labels }: MachineName & DescriptionChange,
): Promise<MachineRecord | undefined> {
  const row = await context.db.queryOne<MachineRow>(sql`
    WITH updated AS (
      UPDATE machines SET disruption = coalesce(${disruption}, disruption),
        is_branchable = coalesce(${isBranchable}::boolean, is_branchable),
        ttl_seconds = coalesce(${ttlSeconds}::bigint, ttl_seconds), at_end = coalesce(${atEnd}, at_end),
        labels = coalesce(${labels === null ? null : JSON.stringify(labels)}::jsonb, labels), revision = revision + 1,
        updated_at = ${instantOf(context.clock.now())}
      WHERE id = ${id} AND tenant_id = ${tenantId} AND deleted_at IS NULL RETURNING *)
    SELECT ${MACHINE_COLUMNS} FROM updated m LEFT JOIN nodes n ON n.id = m.node_id`);
  if (row === undefined) return undefined;
  await announce(context, row);
  return fromRow(row);
}

/**
 * Announces a new revision to every cache: at once to this server's, to others' before the caller's answer.
 */
export const announce = (context: Context, { id, revision }: { readonly id: string; readonly revision: number }) =>
  context.db.notify("machines", `${id}:${revision}`);

/** Claims machines that are due for the reconciler, for `leaseMs` milliseconds. */
export async function claimDueMachines(
  context: Context,
  { limit, leaseMs }: { readonly limit: number; readonly leaseMs: number },
): Promise<readonly MachineRecord[]> {
  const now = context.clock.now();
  const rows = await context.db.query<MachineRow>(sql`
    WITH due AS (
      SELECT id FROM machines WHERE reconcile_at <= ${instantOf(now)}
      ORDER BY reconcile_at LIMIT ${limit} FOR UPDATE SKIP LOCKED),
    claimed AS (
      UPDATE machines SET reconcile_at = ${instantOf(now + leaseMs)} WHERE id IN (SELECT id FROM due) RETURNING *)
    SELECT ${MACHINE_COLUMNS} FROM claimed m LEFT JOIN nodes n ON n.id = m.node_id`);
  return rows.map(fromRow);
}

/** Records that nothing is left to do for a machine, if it still has the revision. */
export async function settleMachine(db: Queryable, machine: MutableMachine): Promise<void> {
  await db.execute(sql`
    UPDATE machines SET reconcile_at = NULL WHERE id = ${machine.id} AND revision = ${machine.revision}`);
}

/**
 * Removes the rows of machines deleted more than TOMBSTONE_MS ago, except those that a node may still have:
 * without the row, nothing would delete them there when it is back. Events and runs stay. Returns how many.
 */
export function purgeTombstones(context: Context, limit: number): Promise<number> {
  return context.db.execute(sql`
    DELETE FROM machines WHERE id IN (
      SELECT id FROM machines m WHERE deleted_at < ${instantOf(context.clock.now() - TOMBSTONE_MS)} AND reconcile_at IS NULL
        AND NOT EXISTS (SELECT FROM machine_copies c WHERE c.machine_id = m.id)
      ORDER BY deleted_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}
