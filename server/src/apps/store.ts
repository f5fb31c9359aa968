/**
 * Every SQL statement that reads apps, their releases, rollouts and instances, and those that requests write.
 * What a step writes is in step-store.ts.
 *
 * Always: an app, its rollout and its instances are changed under the lock of the app's row (`lockApp`), so a
 * request and a step exclude each other. Instants are epoch milliseconds.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { eventDocument, insertEvents } from "../write-events.ts";
import type { InstanceMachine, InstanceRow, Lease } from "./instances.ts";
import type { Course, ReleaseSpec } from "./release.ts";
import type { Progress, Strategy } from "./rollout/facts.ts";

export interface AppRecord {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
  readonly count: number;
  readonly currentRelease: number | null;
  readonly lastRelease: number;
  readonly domain: string | null;
  readonly coLocateWith: string | null;
  readonly isPublic: boolean;
  readonly createdBy: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly isDestroyed: boolean;
  readonly waitingFor: string | null;
  readonly failures: number;
  readonly retryAt: number | null;
  readonly failure: string | null;
  readonly isDegraded: boolean;
  /** The label of its host name below the domain for machines and apps, or its id. */
  readonly hostName: string;
}

export interface ReleaseRecord {
  readonly appId: string;
  readonly number: number;
  readonly image: string;
  readonly resolvedImage: string;
  readonly digest: string;
  readonly spec: ReleaseSpec;
  readonly secretEnv: Buffer | null;
  readonly secretNames: readonly string[];
  readonly course: Course;
  readonly why: string;
  readonly madeBy: string;
  readonly madeAt: number;
}

export interface RolloutRecord {
  /** Also the id of the operation that watches it. */
  readonly id: string;
  readonly appId: string;
  readonly from: number | null;
  readonly to: number;
  readonly strategy: Strategy;
  readonly isPromoted: boolean;
  readonly progress: Progress | null;
  readonly placingMs: number;
  readonly checkingMs: number;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly outcome: "succeeded" | "failed" | "superseded" | null;
  readonly why: string | null;
}

export interface AppName {
  readonly tenantId: string;
  readonly name: string;
}

const APP = sql`
  a.id, a.tenant_id AS "tenantId", a.name, a.count, a.current_release AS "currentRelease", a.last_release AS "lastRelease",
  a.domain, a.co_locate_with AS "coLocateWith", a.is_public AS "isPublic", a.created_by AS "createdBy",
  ms(a.created_at) AS "createdAt", ms(a.updated_at) AS "updatedAt", a.deleted_at IS NOT NULL AS "isDestroyed",
  a.waiting_for AS "waitingFor", a.failures, ms(a.retry_at) AS "retryAt", a.failure, a.is_degraded AS "isDegraded",
  coalesce((SELECT h.name FROM hosts h WHERE h.subject_id = a.id AND h.freed_at IS NULL AND strpos(h.name, '.') = 0), a.id) AS "hostName"`;

const RELEASE = sql`
  r.app_id AS "appId", r.number, r.image, r.resolved_image AS "resolvedImage", r.digest, r.spec, r.secret_env AS "secretEnv",
  r.secret_names AS "secretNames", r.course, r.why, r.made_by AS "madeBy", ms(r.made_at) AS "madeAt"`;

const ROLLOUT = sql`
  o.id, o.app_id AS "appId", o.from_release AS "from", o.to_release AS "to", o.strategy, o.is_promoted AS "isPromoted",
  o.progress, o.placing_ms AS "placingMs", o.checking_ms AS "checkingMs", ms(o.started_at) AS "startedAt",
  ms(o.ended_at) AS "endedAt", o.outcome, o.why`;

/** Whether the node `n` of a machine is lost: what runs there may run, and nothing is known of it. */
const IS_NODE_LOST = sql`coalesce(n.status = 'revoked' OR n.status = 'unreachable' AND n.lost_at IS NOT NULL, false)`;

/** Whether the node `n` of a machine does not report. */
const IS_NODE_SILENT = sql`coalesce(n.status = 'unreachable', false)`;

/** Whether the node `n` of a machine is to lose its machines. */
const IS_NODE_DRAINED = sql`coalesce(n.status IN ('draining', 'drained'), false)`;

/** What a plan has to know of an instance's machine `m`: another value means that its app is looked at. */
const SEEN = sql`(coalesce(m.revision, 0)::text || CASE WHEN ${IS_NODE_LOST} THEN ' lost' WHEN ${IS_NODE_SILENT} THEN ' silent'
  WHEN ${IS_NODE_DRAINED} THEN ' drained' ELSE '' END)`;

/** An app that is not destroyed. */
export const findApp = (db: Queryable, { tenantId, name }: AppName): Promise<AppRecord | undefined> =>
  db.queryOne(
    sql`SELECT ${APP} FROM apps a WHERE a.tenant_id = ${tenantId} AND a.name = ${name} AND a.deleted_at IS NULL`,
  );

/** Any app, also one that was destroyed. */
export const findAnyApp = (db: Queryable, id: string): Promise<AppRecord | undefined> =>
  db.queryOne(sql`SELECT ${APP} FROM apps a WHERE a.id = ${id}`);

export const listApps = (db: Queryable, tenantId: string): Promise<readonly AppRecord[]> =>
  db.query(
    sql`SELECT ${APP} FROM apps a WHERE a.tenant_id = ${tenantId} AND a.deleted_at IS NULL ORDER BY a.created_at, a.id`,
  );

/** Any apps with these ids, also those that were destroyed, oldest first. */
export const listAppsById = (db: Queryable, ids: readonly string[]): Promise<readonly AppRecord[]> =>
  db.query(sql`SELECT ${APP} FROM apps a WHERE a.id = ANY(${[...ids]}::text[]) ORDER BY a.created_at, a.id`);

export const countApps = async (db: Queryable): Promise<number> =>
  (await db.queryOne<{ count: number }>(sql`SELECT count(*)::int AS count FROM apps WHERE deleted_at IS NULL`))
    ?.count ?? 0;

/**
 * Locks an app until the end of the transaction, and reads it as it is then. A statement that waited for the
 * lock reads the row again.
 */
export async function lockApp(db: Queryable, id: string): Promise<AppRecord | undefined> {
  await db.execute(sql`SELECT 1 FROM apps WHERE id = ${id} FOR NO KEY UPDATE`);
  return await findAnyApp(db, id);
}

/** As `lockApp`, by the name of an app that is not destroyed. */
export async function lockAppByName(db: Queryable, { tenantId, name }: AppName): Promise<AppRecord | undefined> {
  const found = await findApp(db, { tenantId, name });
  const app = found && (await lockApp(db, found.id));
  return app === undefined || app.isDestroyed ? undefined : app;
}

export type NewApp = Pick<
  AppRecord,
  "id" | "tenantId" | "name" | "count" | "domain" | "coLocateWith" | "isPublic" | "createdBy"
>;

/**
 * Inserts an app without a release, unless its tenant has as many as its plan allows. `nameTaken`: another
 * request made it.
 */
export async function insertApp(
  db: Queryable,
  app: NewApp,
  now: number,
): Promise<"inserted" | "overCount" | "nameTaken"> {
  const at = instantOf(now);
  const row = await db.queryOne<{ isPermitted: boolean; id: string | null }>(sql`
    WITH permitted AS (
      SELECT held_apps_locked(${app.tenantId}) < (
        SELECT coalesce(t.max_apps, p.max_apps) FROM tenants t
        JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) WHERE t.id = ${app.tenantId}) AS yes),
    next AS (UPDATE app_routes_version SET version = version + 1 RETURNING version),
    inserted AS (
      INSERT INTO apps (id, tenant_id, name, count, co_locate_with, is_public, created_by, created_at, updated_at, waiting_for, route_version)
      SELECT ${app.id}, ${app.tenantId}, ${app.name}, ${app.count}::int, ${app.coLocateWith}, ${app.isPublic}::boolean,
        ${app.createdBy}, ${at}::timestamptz, ${at}::timestamptz, 'its first rollout', next.version
      FROM permitted, next WHERE yes ON CONFLICT DO NOTHING RETURNING id)
    SELECT yes AS "isPermitted", (SELECT id FROM inserted) AS id FROM permitted`);
  if (row?.isPermitted !== true) return "overCount";
  return row.id === null ? "nameTaken" : "inserted";
}

/** The ceiling of the tenant's plan. */
export const readMaxApps = async (db: Queryable, tenantId: string): Promise<number> =>
  (
    await db.queryOne<{ max: number }>(sql`
      SELECT coalesce(t.max_apps, p.max_apps) AS max FROM tenants t
      JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) WHERE t.id = ${tenantId}`)
  )?.max ?? 0;

/**
 * Gives an app another domain; null: none. false: another app has it, or another tenant's app had it within
 * the last 30 days.
 */
export async function takeDomain(
  db: Queryable,
  { id, tenantId }: Pick<AppRecord, "id" | "tenantId">,
  domain: string | null,
): Promise<boolean> {
  await db.execute(sql`
    DELETE FROM hosts WHERE subject_id = ${id} AND strpos(name, '.') > 0 AND name IS DISTINCT FROM ${domain}::text`);
  if (domain !== null) {
    const taken = await db.execute(sql`
      INSERT INTO hosts AS h (name, kind, subject_id, tenant_id) VALUES (${domain}, 'app', ${id}, ${tenantId})
      ON CONFLICT (name) DO UPDATE SET subject_id = excluded.subject_id, kind = excluded.kind, freed_at = NULL
        WHERE h.subject_id = excluded.subject_id OR h.freed_at IS NOT NULL AND h.tenant_id = excluded.tenant_id`);
    if (taken === 0) return false;
  }
  // An ingress that knows the version asks again what has the name.
  await db.execute(sql`
    WITH next AS (UPDATE app_routes_version SET version = version + 1 RETURNING version)
    UPDATE apps SET domain = ${domain}, route_version = (SELECT version FROM next) WHERE id = ${id}`);
  return true;
}

/** What a request changes of an app. It is looked at again at once. */
export interface AppChange {
  readonly count?: number;
  readonly isPublic?: boolean;
  readonly coLocateWith?: string | null;
  readonly keyId: string;
  readonly waitingFor: string;
}

export async function changeApp(db: Queryable, app: AppRecord, change: AppChange, now: number): Promise<void> {
  const { count = app.count, isPublic = app.isPublic, coLocateWith = app.coLocateWith } = change;
  await db.execute(sql`
    UPDATE apps SET count = ${count}, is_public = ${isPublic}, co_locate_with = ${coLocateWith}, created_by = ${change.keyId},
      updated_at = ${instantOf(now)}::timestamptz, waiting_for = ${change.waitingFor}, failures = 0, retry_at = NULL, failure = NULL
    WHERE id = ${app.id}`);
}

/** Destroys an app: its name and its domain are free for its tenant, and its instances end. */
export async function markDestroyed(db: Queryable, id: string, now: number): Promise<void> {
  await db.execute(sql`
    WITH next AS (UPDATE app_routes_version SET version = version + 1 RETURNING version),
    shares AS (DELETE FROM app_shares WHERE app_id = ${id})
    UPDATE apps SET route_version = (SELECT version FROM next), deleted_at = ${instantOf(now)}::timestamptz, updated_at = ${instantOf(now)}::timestamptz,
      waiting_for = 'its instances to end', retry_at = NULL
    WHERE id = ${id} AND deleted_at IS NULL`);
}

export async function insertRelease(db: Queryable, release: ReleaseRecord): Promise<void> {
  await db.execute(sql`
    INSERT INTO app_releases (app_id, number, image, resolved_image, digest, spec, secret_env, secret_names, course, why, made_by, made_at)
    VALUES (${release.appId}, ${release.number}, ${release.image}, ${release.resolvedImage}, ${release.digest},
      ${JSON.stringify(release.spec)}::jsonb, ${release.secretEnv}, ${[...release.secretNames]}::text[],
      ${JSON.stringify(release.course)}::jsonb, ${release.why}, ${release.madeBy}, ${instantOf(release.madeAt)}::timestamptz)`);
  await db.execute(sql`UPDATE apps SET last_release = ${release.number} WHERE id = ${release.appId}`);
}

export const findRelease = (db: Queryable, appId: string, number: number): Promise<ReleaseRecord | undefined> =>
  db.queryOne(sql`SELECT ${RELEASE} FROM app_releases r WHERE r.app_id = ${appId} AND r.number = ${number}`);

/** Names releases: an app and a number. */
export type ReleaseName = Pick<ReleaseRecord, "appId" | "number">;

/** The releases with these names, as far as there are any, in any order. */
export const findReleases = (db: Queryable, names: readonly ReleaseName[]): Promise<readonly ReleaseRecord[]> =>
  db.query(sql`
    SELECT ${RELEASE} FROM app_releases r
    JOIN unnest(${names.map(({ appId }) => appId)}::text[], ${names.map(({ number }) => number)}::int[]) AS u(app_id, number)
      ON u.app_id = r.app_id AND u.number = r.number`);

export type ListedRelease = ReleaseRecord & Pick<RolloutRecord, "outcome"> & { readonly outcomeReason: string | null };

/** Newest first, each with the end of its rollout. */
export const listReleases = (db: Queryable, appId: string, limit: number): Promise<readonly ListedRelease[]> =>
  db.query(sql`
    SELECT ${RELEASE}, o.outcome, o.why AS "outcomeReason"
    FROM app_releases r LEFT JOIN app_rollouts o ON o.app_id = r.app_id AND o.to_release = r.number
    WHERE r.app_id = ${appId} ORDER BY r.number DESC LIMIT ${limit}`);

/** The newest release before `number` whose rollout succeeded. */
export const findGoodReleaseBefore = (
  db: Queryable,
  appId: string,
  number: number,
): Promise<ReleaseRecord | undefined> =>
  db.queryOne(sql`
    SELECT ${RELEASE} FROM app_releases r JOIN app_rollouts o ON o.app_id = r.app_id AND o.to_release = r.number
    WHERE r.app_id = ${appId} AND r.number < ${number} AND o.outcome = 'succeeded' ORDER BY r.number DESC LIMIT 1`);

export async function insertRollout(
  db: Queryable,
  rollout: Pick<RolloutRecord, "id" | "appId" | "from" | "to"> & { readonly course: Course; readonly now: number },
): Promise<void> {
  const { strategy, placingMs, checkingMs } = rollout.course;
  await db.execute(sql`
    INSERT INTO app_rollouts (id, app_id, from_release, to_release, strategy, placing_ms, checking_ms, started_at)
    VALUES (${rollout.id}, ${rollout.appId}, ${rollout.from}, ${rollout.to}, ${JSON.stringify(strategy)}::jsonb,
      ${placingMs}, ${checkingMs}, ${instantOf(rollout.now)}::timestamptz)`);
}

export const findRollout = (db: Queryable, id: string): Promise<RolloutRecord | undefined> =>
  db.queryOne(sql`SELECT ${ROLLOUT} FROM app_rollouts o WHERE o.id = ${id}`);

/** The rollout that is under way. */
export const findActiveRollout = (db: Queryable, appId: string): Promise<RolloutRecord | undefined> =>
  db.queryOne(sql`SELECT ${ROLLOUT} FROM app_rollouts o WHERE o.app_id = ${appId} AND o.ended_at IS NULL`);

/** The rollout of each app that began last, whether or not it has ended. */
export const listLastRollouts = (db: Queryable, appIds: readonly string[]): Promise<readonly RolloutRecord[]> =>
  db.query(sql`
    SELECT DISTINCT ON (o.app_id) ${ROLLOUT} FROM app_rollouts o WHERE o.app_id = ANY(${[...appIds]}::text[])
    ORDER BY o.app_id, o.started_at DESC, o.to_release DESC`);

/** Whether it had not ended before. */
export const endRollout = async (
  db: Queryable,
  id: string,
  {
    outcome,
    why,
    now,
  }: { readonly outcome: "succeeded" | "failed" | "superseded"; readonly why: string; readonly now: number },
): Promise<boolean> =>
  (await db.execute(sql`
    UPDATE app_rollouts SET ended_at = ${instantOf(now)}::timestamptz, outcome = ${outcome}, why = ${why}
    WHERE id = ${id} AND ended_at IS NULL`)) > 0;

/** The canaries are promoted, or traffic was switched. */
export async function markPromoted(db: Queryable, id: string): Promise<void> {
  await db.execute(sql`UPDATE app_rollouts SET is_promoted = true WHERE id = ${id} AND ended_at IS NULL`);
}

interface ReadInstance extends Omit<InstanceRow, "machine"> {
  readonly appId: string;
  readonly machine: InstanceMachine | null;
}

/** The instances of apps with what their machines' rows say, oldest first. */
export const listInstances = (db: Queryable, appIds: readonly string[]): Promise<readonly ReadInstance[]> =>
  db.query(sql`
    SELECT i.app_id AS "appId", i.machine_id AS "machineId", i.release, ms(i.made_at) AS "madeAt", i.error,
      i.is_hopeless AS "isHopeless", ms(i.retired_at) AS "retiredAt", i.retired_why AS "retiredWhy",
      ms(i.removed_at) AS "removedAt", i.is_routed AS "isRouted", i.route_version AS "routeVersion",
      ms(i.unrouted_at) AS "unroutedAt", i.was_unhealthy AS "wasUnhealthy", ${IS_NODE_LOST} AS "isNodeLost",
      ${IS_NODE_SILENT} AS "isNodeSilent", ${IS_NODE_DRAINED} AS "isNodeDrained", ${SEEN} AS seen,
      CASE WHEN m.id IS NOT NULL THEN jsonb_build_object(
        'desiredState', m.desired_state, 'generation', m.generation, 'nodeId', m.node_id, 'moveId', m.move_id,
        'moveStops', m.move_stops, 'error', m.error, 'observedState', m.observed_state,
        'observedGeneration', m.observed_generation, 'observedBootId', m.observed_boot_id,
        'observedReason', m.observed_reason, 'observedReasonCode', m.observed_reason_code, 'revision', m.revision,
        'readyAt', ms(m.ready_at), 'deletedAt', ms(m.deleted_at), 'health', m.observed_details->'health',
        'unresponsiveSince', m.observed_details->'unresponsiveSince',
        'hostPorts', coalesce(m.observed_details->'hostPorts', '[]')) END AS machine
    FROM app_instances i LEFT JOIN machines m ON m.id = i.machine_id LEFT JOIN nodes n ON n.id = m.node_id
    WHERE i.app_id = ANY(${[...appIds]}::text[]) ORDER BY i.made_at, i.machine_id`);

/**
 * The nodes of the app beside whose instances an app's own are placed, the nodes with the fewest of them
 * first.
 */
export const listNodesBeside = async (
  db: Queryable,
  { id, tenantId, coLocateWith }: AppRecord,
): Promise<readonly string[]> =>
  coLocateWith === null
    ? []
    : (
        await db.query<{ nodeId: string }>(sql`
          SELECT m.node_id AS "nodeId", (
              SELECT count(*) FROM app_instances o JOIN machines om ON om.id = o.machine_id
              WHERE o.app_id = ${id} AND o.retired_at IS NULL AND om.node_id = m.node_id) AS own
          FROM app_instances i JOIN apps a ON a.id = i.app_id JOIN machines m ON m.id = i.machine_id
          WHERE a.tenant_id = ${tenantId} AND a.name = ${coLocateWith} AND a.deleted_at IS NULL
            AND i.retired_at IS NULL AND m.node_id IS NOT NULL AND m.deleted_at IS NULL
          GROUP BY m.node_id ORDER BY own, m.node_id`)
      ).map(({ nodeId }) => nodeId);

/** How many instances of each release of an app, of those that are to stay, each node has. */
export const countOnNodes = (
  db: Queryable,
  appId: string,
): Promise<readonly { readonly release: number; readonly nodeId: string; readonly count: number }[]> =>
  db.query(sql`
    SELECT i.release, m.node_id AS "nodeId", count(*)::int AS count
    FROM app_instances i JOIN machines m ON m.id = i.machine_id
    WHERE i.app_id = ${appId} AND i.retired_at IS NULL AND m.node_id IS NOT NULL AND m.deleted_at IS NULL
    GROUP BY i.release, m.node_id`);

/** The ingresses that may serve apps now, by the clock of the database. */
export const listLeases = (db: Queryable): Promise<readonly Lease[]> =>
  db.query(sql`SELECT version, open FROM ingress_leases WHERE lease_until > now()`);

/** How many of an app's machines take places for running machines. */
export const countActive = async (db: Queryable, appId: string): Promise<number> =>
  (
    await db.queryOne<{ count: number }>(sql`
      SELECT count(*)::int AS count FROM app_instances i JOIN machines m ON m.id = i.machine_id
      WHERE i.app_id = ${appId} AND m.is_active`)
  )?.count ?? 0;

/**
 * Apps that have something to do, after `after` in the order of their ids. Those of suspended tenants wait.
 */
export const listDueApps = async (
  db: Queryable,
  { now, after, limit }: { readonly now: number; readonly after: string; readonly limit: number },
): Promise<readonly string[]> =>
  (
    await db.query<{ id: string }>(sql`
      SELECT a.id FROM apps a JOIN tenants t ON t.id = a.tenant_id
      WHERE a.id > ${after} AND (t.status = 'active' OR a.deleted_at IS NOT NULL)
        AND (a.waiting_for IS NOT NULL OR a.wake_at <= ${instantOf(now)}::timestamptz OR EXISTS (
          SELECT 1 FROM app_instances i LEFT JOIN machines m ON m.id = i.machine_id LEFT JOIN nodes n ON n.id = m.node_id
          WHERE i.app_id = a.id AND i.seen IS DISTINCT FROM ${SEEN}))
      ORDER BY a.id LIMIT ${limit}`)
  ).map(({ id }) => id);

/** An event with the id of what it is about. */
export interface Noted {
  readonly subjectId: string;
  readonly event: NewEvent;
}

/** Writes events of a tenant, in their order. */
export async function noteEvents(
  db: Queryable,
  tenantId: string,
  events: readonly Noted[],
  now: number,
): Promise<void> {
  if (events.length === 0) return;
  const documents = events.map(({ subjectId, event }) => ({ subject_id: subjectId, event: eventDocument(event) }));
  await db.execute(
    insertEvents(sql`
      SELECT ${tenantId}::text AS tenant_id, e.value->>'subject_id' AS subject_id, e.value->'event' AS event,
        ${instantOf(now)}::timestamptz AS created_at
      FROM jsonb_array_elements(${JSON.stringify(documents)}::jsonb) WITH ORDINALITY e(value, position) ORDER BY e.position`),
  );
}

/** Destroyed apps are kept this long, with the names that only their tenants can have. */
const TOMBSTONE_MS = 30 * 24 * 60 * 60_000;

/** Removes apps that were destroyed long ago and of which nothing is left. */
export const purgeApps = (db: Queryable, now: number, limit: number): Promise<number> =>
  db.execute(sql`
    DELETE FROM apps WHERE id IN (
      SELECT a.id FROM apps a WHERE a.deleted_at < ${instantOf(now - TOMBSTONE_MS)}::timestamptz
        AND NOT EXISTS (SELECT 1 FROM app_instances i WHERE i.app_id = a.id)
      ORDER BY a.deleted_at, a.id LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);

interface InstanceCounts {
  readonly routed: number;
  readonly waiting: number;
  readonly leaving: number;
}

/** How many instances of all apps get requests, do not, and leave. */
export const countStatuses = async (db: Queryable): Promise<InstanceCounts> =>
  (await db.queryOne<InstanceCounts>(sql`
    SELECT count(*) FILTER (WHERE is_routed)::int AS routed,
      count(*) FILTER (WHERE NOT is_routed AND retired_at IS NULL)::int AS waiting,
      count(*) FILTER (WHERE retired_at IS NOT NULL)::int AS leaving FROM app_instances`)) ?? {
    routed: 0,
    waiting: 0,
    leaving: 0,
  };
