/**
 * Statements over machine_sessions.
 *
 * Always: what a command changed is applied to the row as it is then, under a lock, so that two commands of a session that
 * run at once keep both their changes.
 */
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { instantOf } from "../store.ts";
import { applyChange, type SessionChange, type SessionState } from "./script.ts";

export interface SessionRecord extends SessionState {
  readonly id: string;
  readonly machineId: string;
  readonly createdAt: Date;
  readonly lastExecAt: Date | null;
}

const COLUMNS = sql`
  s.id, s.machine_id AS "machineId", s.cwd, s.env, s.unset_names AS "unsetNames", s.has_profile AS "hasProfile",
  s.created_at AS "createdAt", s.last_exec_at AS "lastExecAt"`;

export interface MachineOwned {
  readonly tenantId: string;
  readonly machineId: string;
}

/** Oldest first. */
export function listSessions(db: Queryable, { machineId }: MachineOwned): Promise<readonly SessionRecord[]> {
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

/** The session, new or made as the same before; `taken`: the machine has another one with this id; `overCount`: it has `max` of them. */
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
): Promise<SessionRecord | "taken" | "overCount"> {
  const { machineId, id, madeAs, cwd, env } = session;
  return context.db.transaction(async (transaction) => {
    const held = await transaction.queryOne<{ count: number }>(sql`SELECT sessions_locked(${machineId}) AS count`);
    const known = await transaction.queryOne<SessionRecord & { readonly isOwn: boolean }>(sql`
      SELECT ${COLUMNS}, s.made_as IS NOT DISTINCT FROM ${madeAs} AS "isOwn" FROM machine_sessions s
      WHERE s.machine_id = ${machineId} AND s.id = ${id}`);
    if (known !== undefined) return known.isOwn ? known : "taken";
    if ((held?.count ?? 0) >= max) return "overCount";
    const made = await transaction.queryOne<SessionRecord>(sql`
      INSERT INTO machine_sessions AS s (machine_id, id, made_as, cwd, env, created_at)
      VALUES (${machineId}, ${id}, ${madeAs}, ${cwd}, ${JSON.stringify(env)}::jsonb,
        ${instantOf(context.clock.now())}::timestamptz)
      RETURNING ${COLUMNS}`);
    return made ?? "taken";
  });
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
 * A command of the session has ended; `change` null: nothing is known of what it changed. Whether everything could be kept;
 * a session that was deleted meanwhile keeps nothing, and that is no news.
 */
export function keepChange(
  context: Context,
  { machineId, id }: Pick<SessionRecord, "machineId" | "id">,
  change: SessionChange | null,
): Promise<boolean> {
  const now = instantOf(context.clock.now());
  return context.db.transaction(async (transaction) => {
    const held = await transaction.queryOne<SessionRecord>(sql`
      SELECT ${COLUMNS} FROM machine_sessions s WHERE s.machine_id = ${machineId} AND s.id = ${id} FOR UPDATE`);
    if (held === undefined) return true;
    const next = change === null ? held : applyChange(held, change);
    const { cwd, env, unsetNames, hasProfile } = next ?? held;
    await transaction.execute(sql`
      UPDATE machine_sessions SET cwd = ${cwd}, env = ${JSON.stringify(env)}::jsonb, unset_names = ${unsetNames},
        has_profile = ${hasProfile}, last_exec_at = greatest(last_exec_at, ${now}::timestamptz)
      WHERE machine_id = ${machineId} AND id = ${id}`);
    return next !== null;
  });
}
