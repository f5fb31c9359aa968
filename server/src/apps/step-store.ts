/**
 * The SQL statements that a step of an app writes, under the lock of its row.
 *
 * Always: an instance's row is written before its machine is made, with a row of machine_owners. Who changes
 * a table of targets takes the next version, last, and holds it until the commit, so that ingresses see
 * versions in their order.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { InstanceRow } from "./instances.ts";
import type { Progress } from "./rollout/facts.ts";

export async function addInstances(
  db: Queryable,
  appId: string,
  added: readonly { readonly machineId: string; readonly release: number }[],
  now: number,
): Promise<void> {
  if (added.length === 0) return;
  const at = instantOf(now);
  await db.execute(sql`
    WITH owned AS (
      INSERT INTO machine_owners (machine_id, kind, id, created_at)
      SELECT u.id, 'app', ${appId}, ${at}::timestamptz FROM unnest(${added.map(({ machineId }) => machineId)}::text[]) AS u(id))
    INSERT INTO app_instances (machine_id, app_id, release, made_at)
    SELECT u.id, ${appId}, u.release, ${at}::timestamptz
    FROM unnest(${added.map(({ machineId }) => machineId)}::text[], ${added.map(({ release }) => release)}::int[]) AS u(id, release)`);
}

export async function retireInstances(
  db: Queryable,
  retired: readonly { readonly id: string; readonly why: string }[],
  now: number,
): Promise<void> {
  if (retired.length === 0) return;
  // The table of targets changes in the same transaction; a row may not be in it and retired.
  await db.execute(sql`
    UPDATE app_instances i SET retired_at = ${instantOf(now)}::timestamptz, retired_why = u.why
    FROM unnest(${retired.map(({ id }) => id)}::text[], ${retired.map(({ why }) => why)}::text[]) AS u(id, why)
    WHERE i.machine_id = u.id AND i.retired_at IS NULL AND NOT i.is_routed`);
}

/** Sets an app's table of targets. Returns its version. */
export async function routeInstances(
  db: Queryable,
  appId: string,
  ids: readonly string[],
  now: number,
): Promise<number> {
  const row = await db.queryOne<{ version: number }>(sql`
    UPDATE app_routes_version SET version = version + 1 RETURNING version`);
  if (row === undefined) throw new Error("the version of the tables of targets is missing");
  await db.execute(sql`
    UPDATE app_instances SET route_version = ${row.version}, is_routed = machine_id = ANY(${[...ids]}::text[]),
      unrouted_at = CASE WHEN machine_id = ANY(${[...ids]}::text[]) THEN NULL ELSE ${instantOf(now)}::timestamptz END
    WHERE app_id = ${appId} AND is_routed <> (machine_id = ANY(${[...ids]}::text[]))`);
  await db.execute(sql`UPDATE apps SET route_version = ${row.version} WHERE id = ${appId}`);
  return row.version;
}

/** Decides to delete machines. */
export async function removeInstances(db: Queryable, ids: readonly string[], now: number): Promise<void> {
  if (ids.length === 0) return;
  const at = instantOf(now);
  await db.execute(sql`
    WITH discarded AS (
      UPDATE machine_owners SET discarded_at = coalesce(discarded_at, ${at}::timestamptz) WHERE machine_id = ANY(${[...ids]}::text[]))
    UPDATE app_instances SET removed_at = coalesce(removed_at, ${at}::timestamptz) WHERE machine_id = ANY(${[...ids]}::text[])`);
}

/** Forgets instances of which nothing is left. */
export async function forgetInstances(db: Queryable, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await db.execute(sql`
    WITH owners AS (DELETE FROM machine_owners WHERE machine_id = ANY(${[...ids]}::text[]))
    DELETE FROM app_instances WHERE machine_id = ANY(${[...ids]}::text[])`);
}

/** Notes what this plan knew of its instances. */
export async function noteSeen(
  db: Queryable,
  rows: readonly (Pick<InstanceRow, "machineId" | "seen"> & { readonly isUnhealthy: boolean })[],
): Promise<void> {
  if (rows.length === 0) return;
  await db.execute(sql`
    UPDATE app_instances i SET seen = u.seen, was_unhealthy = u.is_unhealthy
    FROM unnest(${rows.map(({ machineId }) => machineId)}::text[], ${rows.map(({ seen }) => seen)}::text[],
      ${rows.map(({ isUnhealthy }) => isUnhealthy)}::boolean[]) AS u(id, seen, is_unhealthy)
    WHERE i.machine_id = u.id AND (i.seen IS DISTINCT FROM u.seen OR i.was_unhealthy <> u.is_unhealthy)`);
}

/** Notes why an instance's machine could not be made or started. Its app is due then. */
export async function noteInstanceError(
  db: Queryable,
  machineId: string,
  { error, isHopeless }: { readonly error: string; readonly isHopeless: boolean },
): Promise<void> {
  await db.execute(sql`
    UPDATE app_instances SET error = ${error}, is_hopeless = ${isHopeless}, seen = NULL
    WHERE machine_id = ${machineId} AND error IS NULL`);
}

export async function saveProgress(db: Queryable, rolloutId: string, progress: Progress): Promise<void> {
  await db.execute(sql`
    UPDATE app_rollouts SET progress = ${JSON.stringify(progress)}::jsonb
    WHERE id = ${rolloutId} AND ended_at IS NULL AND progress IS DISTINCT FROM ${JSON.stringify(progress)}::jsonb`);
}

export interface SteppedApp {
  readonly id: string;
  readonly currentRelease: number | null;
  readonly waitingFor: string | null;
  readonly wakeAt: number | null;
  readonly failures: number;
  readonly retryAt: number | null;
  readonly failure: string | null;
  readonly isDegraded: boolean;
  /** A rollout ended, or anything else that an owner sees changed. */
  readonly isChanged: boolean;
}

export async function saveApp(db: Queryable, app: SteppedApp, now: number): Promise<void> {
  await db.execute(sql`
    UPDATE apps SET current_release = ${app.currentRelease}::int, waiting_for = ${app.waitingFor},
      wake_at = ${instantOf(app.wakeAt)}::timestamptz, failures = ${app.failures}, retry_at = ${instantOf(app.retryAt)}::timestamptz,
      failure = ${app.failure}, is_degraded = ${app.isDegraded},
      updated_at = CASE WHEN ${app.isChanged}::boolean THEN ${instantOf(now)}::timestamptz ELSE updated_at END
    WHERE id = ${app.id}`);
}
