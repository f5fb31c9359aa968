/**
 * Apps as rows, whose instances are machines of the test: a test sets the table of targets itself, as a
 * rollout would.
 */
import { randomBytes } from "node:crypto";
import type { Course, ReleaseSpec } from "../../src/apps/release.ts";
import { type Database, type Queryable, sql } from "../../src/db/database.ts";
import { until } from "../../../test/support/until.ts";

export interface NewTestApp {
  readonly tenantId: string;
  readonly name: string;
  /**
   * Its instances. None is in the table of targets yet, and they leave the apps that had them before.
   */
  readonly machineIds?: readonly string[];
  readonly domain?: string | null;
  readonly isPublic?: boolean;
}

const SPEC: ReleaseSpec = {
  ...{ cpus: 1, memoryMb: 256, port: 80, env: {}, hasNetwork: true },
  ...{ graceMs: 10_000, health: null },
};
const COURSE: Course = {
  strategy: { type: "rolling", batchSize: 1, waitMs: 0 },
  ...{ usesHealthCheck: false, placingMs: 60_000, checkingMs: 180_000 },
};

const nextVersion = async (db: Queryable): Promise<number> => {
  const next = sql`UPDATE app_routes_version SET version = version + 1 RETURNING version`;
  return (await db.queryOne<{ version: number }>(next))?.version ?? 0;
};

/** Inserts an app with one release. Returns its id. */
export async function insertTestApp(db: Database, app: NewTestApp): Promise<string> {
  const id = `app-${randomBytes(16).toString("hex")}`;
  const { tenantId, name, machineIds = [], domain = null, isPublic = true } = app;
  await db.transaction(async (transaction) => {
    const made = await nextVersion(transaction);
    await transaction.execute(sql`
      WITH freed AS (DELETE FROM app_instances WHERE machine_id = ANY(${[...machineIds]}::text[]) RETURNING app_id)
      UPDATE apps SET route_version = ${made} WHERE id IN (SELECT app_id FROM freed)`);
    await transaction.execute(sql`
      INSERT INTO apps (id, tenant_id, name, count, current_release, last_release, domain, is_public, created_by, created_at,
        updated_at, route_version)
      VALUES (${id}, ${tenantId}, ${name}, ${machineIds.length}, 1, 1, ${domain}, ${isPublic}, 'key-test', now(), now(), ${made})`);
    await transaction.execute(sql`
      INSERT INTO app_releases (app_id, number, image, resolved_image, digest, spec, course, why, made_by, made_at)
      VALUES (${id}, 1, 'local/busybox', 'local/busybox', 'sha256:0', ${JSON.stringify(SPEC)}::jsonb,
        ${JSON.stringify(COURSE)}::jsonb, 'a test made it', 'key-test', now())`);
    // No plan is made while its machines stay as they are here.
    await transaction.execute(sql`
      INSERT INTO app_instances (machine_id, app_id, release, made_at, seen)
      SELECT m.id, ${id}, 1, now(), m.revision::text FROM machines m WHERE m.id = ANY(${[...machineIds]}::text[])`);
  });
  await db.notify("routes", id);
  return id;
}

/** Sets the table of targets. Returns its version. */
export async function routeTestApp(db: Database, id: string, machineIds: readonly string[]): Promise<number> {
  const version = await db.transaction(async (transaction) => {
    const next = await nextVersion(transaction);
    const targets = sql`machine_id = ANY(${[...machineIds]}::text[])`;
    await transaction.execute(sql`
      UPDATE app_instances SET route_version = ${next}, is_routed = ${targets},
        unrouted_at = CASE WHEN ${targets} THEN NULL ELSE now() END
      WHERE app_id = ${id} AND is_routed <> (${targets})`);
    await transaction.execute(sql`UPDATE apps SET route_version = ${next} WHERE id = ${id}`);
    return next;
  });
  await db.notify("routes", id);
  return version;
}

export interface TestLease {
  readonly id: string;
  readonly version: number;
  readonly open: Readonly<Record<string, number>>;
}

/** The leases that have not ended. */
export const testLeases = (db: Queryable): Promise<readonly TestLease[]> =>
  db.query<TestLease>(sql`SELECT id, version, open FROM ingress_leases WHERE lease_until > now() ORDER BY id`);

/** Waits until that many ingresses have confirmed the version. */
export async function untilConfirmed(db: Queryable, version: number, ingresses: number): Promise<void> {
  const isConfirmed = async (): Promise<boolean> =>
    (await testLeases(db)).filter((lease) => lease.version >= version).length >= ingresses;
  await until(isConfirmed, { what: `version ${version} to be confirmed`, deadlineMs: 10_000 });
}

/** Puts machines into the table of an app, and waits until that many ingresses serve it. */
export async function serveTestApp(
  db: Database,
  app: NewTestApp & { readonly ingresses: number },
): Promise<{ readonly id: string }> {
  const id = await insertTestApp(db, app);
  await untilConfirmed(db, await routeTestApp(db, id, app.machineIds ?? []), app.ingresses);
  return { id };
}
