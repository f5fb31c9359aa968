/**
 * Statements over machine_sessions.
 *
 * Always:
 * - A change is applied to the present row under a lock, so concurrent commands of a session keep both their
 *   changes.
 * - All sessions of a machine have at most SESSION_BYTES_MAX together, counted under a lock on the machine. A
 *   change that makes a session smaller is always stored.
 */
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { instantOf } from "../../db/instant.ts";
import { applyChange, type SessionChange, type SessionState } from "./script.ts";

/** Variables and directories of all sessions of a machine: eight that are full, or 256 with 16 KiB each. */
export const SESSION_BYTES_MAX = 4 * 1024 * 1024;

export interface SessionRecord extends SessionState {
  readonly id: string;
  readonly machineId: string;
  readonly createdAt: number;
  readonly lastExecAt: number | null;
}

const COLUMNS = sql`
  s.id, s.machine_id AS "machineId", s.cwd, s.env, s.unset_names AS "unsetNames", s.has_profile AS "hasProfile",
  ms(s.created_at) AS "createdAt",
  ms(s.last_exec_at) AS "lastExecAt"`;

export interface MachineOwned {
  readonly tenantId: string;
  readonly machineId: string;
}

/** Oldest first. */
export function listSessions(db: Queryable, machineId: string): Promise<readonly SessionRecord[]> {
  return db.query<SessionRecord>(sql`
    SELECT ${COLUMNS} FROM machine_sessions s WHERE s.machine_id = ${machineId} ORDER BY s.created_at, s.id`);
}

/** A session of a machine of the tenant's that is not deleted. */
export function findSession(
  db: Queryable,
  { tenantId, machineId, sessionId }: MachineOwned & { readonly sessionId: string },
): Promise<SessionRecord | undefined> {
  return db.queryOne<SessionRecord>(sql`
    SELECT ${COLUMNS} FROM machine_sessions s JOIN machines m ON m.id = s.machine_id
    WHERE s.machine_id = ${machineId} AND s.id = ${sessionId} AND m.tenant_id = ${tenantId} AND m.deleted_at IS NULL`);
}

/**
 * The session, new or made as the same before; `taken`: the machine has another one with this id;
 * `overCount`: it has `max` of them; `overBytes`: they would hold too much.
 */
export function insertSession(
  context: Context,
  session: {
    readonly machineId: string;
    readonly id: string;
    readonly madeAs: string;
    readonly cwd: string | null;
    readonly env: object;
  },
  max: number,
): Promise<SessionRecord | "taken" | "overCount" | "overBytes"> {
  const { machineId, id, madeAs, cwd, env } = session;
  return context.db.transaction(async (transaction) => {
    const held = await transaction.queryOne<{ count: number }>(sql`SELECT sessions_locked(${machineId}) AS count`);
    const known = await transaction.queryOne<SessionRecord & { readonly isOwn: boolean }>(sql`
      SELECT ${COLUMNS}, s.made_as IS NOT DISTINCT FROM ${madeAs} AS "isOwn" FROM machine_sessions s
      WHERE s.machine_id = ${machineId} AND s.id = ${id}`);
    if (known !== undefined) return known.isOwn ? known : "taken";
    if ((held?.count ?? 0) >= max) return "overCount";
    const others = await bytesHeld(transaction, { machineId, without: id });
    if (others + bytesOf({ cwd, env }) > SESSION_BYTES_MAX) return "overBytes";
    const made = await transaction.queryOne<SessionRecord>(sql`
      INSERT INTO machine_sessions AS s (machine_id, id, made_as, cwd, env, created_at)
      VALUES (${machineId}, ${id}, ${madeAs}, ${cwd}, ${JSON.stringify(env)}::jsonb,
        ${instantOf(context.clock.now())}::timestamptz)
      RETURNING ${COLUMNS}`);
    return made ?? "taken";
  });
}

/** As the database counts them, or a little more: the text of what JSON it keeps is spaced. */
function bytesOf({ cwd, env }: { readonly cwd: string | null; readonly env: object }): number {
  return Buffer.byteLength(JSON.stringify(env)) + 2 * Object.keys(env).length + Buffer.byteLength(cwd ?? "");
}

async function bytesHeld(
  transaction: Queryable,
  { machineId, without }: { readonly machineId: string; readonly without: string },
): Promise<number> {
  const row = await transaction.queryOne<{ bytes: number }>(sql`
    SELECT coalesce(sum(bytes), 0)::integer AS bytes FROM machine_sessions
    WHERE machine_id = ${machineId} AND id <> ${without}`);
  return row?.bytes ?? 0;
}

/** Whether there was one. */
export async function removeSession(
  db: Queryable,
  { machineId, sessionId }: { readonly machineId: string; readonly sessionId: string },
): Promise<boolean> {
  const removed = await db.execute(sql`
    DELETE FROM machine_sessions WHERE machine_id = ${machineId} AND id = ${sessionId}`);
  return removed === 1;
}

/**
 * Records that a command of the session has ended; `change` null: its changes are unknown. `tooLarge`: the
 * session would be too large; `overBytes`: all sessions of the machine would be. Then the change is dropped.
 * For a session that was deleted in the meantime nothing is stored, and that is not reported.
 */
export function keepChange(
  context: Context,
  { machineId, id }: Pick<SessionRecord, "machineId" | "id">,
  change: SessionChange | null,
): Promise<"kept" | "tooLarge" | "overBytes"> {
  const now = instantOf(context.clock.now());
  return context.db.transaction(async (transaction) => {
    // The machine is locked before its session, as everywhere.
    await transaction.queryOne(sql`SELECT sessions_locked(${machineId})`);
    const held = await transaction.queryOne<SessionRecord>(sql`
      SELECT ${COLUMNS} FROM machine_sessions s WHERE s.machine_id = ${machineId} AND s.id = ${id} FOR UPDATE`);
    if (held === undefined) return "kept";
    const next = change === null ? held : applyChange(held, change);
    const others = await bytesHeld(transaction, { machineId, without: id });
    const isOver = next !== null && bytesOf(next) > bytesOf(held) && others + bytesOf(next) > SESSION_BYTES_MAX;
    const { cwd, env, unsetNames, hasProfile } = next === null || isOver ? held : next;
    await transaction.execute(sql`
      UPDATE machine_sessions SET cwd = ${cwd}, env = ${JSON.stringify(env)}::jsonb, unset_names = ${unsetNames},
        has_profile = ${hasProfile}, last_exec_at = greatest(last_exec_at, ${now}::timestamptz)
      WHERE machine_id = ${machineId} AND id = ${id}`);
    if (next === null) return "tooLarge";
    return isOver ? "overBytes" : "kept";
  });
}
