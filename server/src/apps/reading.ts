/**
 * Reads apps whole, as their views need them: a fixed number of statements, however many apps there are.
 */
import type { Queryable } from "../db/database.ts";
import {
  type AppName,
  type AppRecord,
  findApp,
  findReleases,
  listApps,
  listInstances,
  listLastRollouts,
  listLeases,
} from "./store.ts";
import { notFound } from "../missing.ts";
import type { AppReading } from "./view.ts";

/** Throws a Refusal when the tenant has no such app. */
export async function requireApp(db: Queryable, name: AppName): Promise<AppRecord> {
  const app = await findApp(db, name);
  if (app === undefined) throw notFound("app", name.name);
  return app;
}

export const readApp = async (db: Queryable, name: AppName): Promise<AppReading> =>
  await readOne(db, await requireApp(db, name));

export async function readOne(db: Queryable, app: AppRecord): Promise<AppReading> {
  const [reading] = await readAll(db, [app]);
  if (reading === undefined) throw new Error("one app has no reading");
  return reading;
}

/** Oldest first. */
export const readApps = async (db: Queryable, tenantId: string): Promise<readonly AppReading[]> =>
  await readAll(db, await listApps(db, tenantId));

async function readAll(db: Queryable, apps: readonly AppRecord[]): Promise<readonly AppReading[]> {
  if (apps.length === 0) return [];
  const ids = apps.map(({ id }) => id);
  const [rollouts, rows, leases] = await Promise.all([
    listLastRollouts(db, ids),
    listInstances(db, ids),
    listLeases(db),
  ]);
  return await Promise.all(
    apps.map(async (app) => {
      const rollout = rollouts.find(({ appId }) => appId === app.id);
      const own = rows.filter(({ appId }) => appId === app.id);
      const numbers = new Set([
        ...own.map(({ release }) => release),
        rollout?.to ?? 0,
        app.currentRelease ?? 0,
        app.lastRelease,
      ]);
      const releases = await findReleases(db, app.id, [...numbers]);
      return { app, rollout, rows: own, leases, releases: new Map(releases.map((each) => [each.number, each])) };
    }),
  );
}
