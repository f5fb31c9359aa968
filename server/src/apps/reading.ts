/**
 * Reads apps whole, as their views need them: a fixed number of statements, however many apps there are.
 *
 * Always: rollouts are read before their apps. So who sees that a rollout has ended sees the release that it
 * left, which the same commit wrote.
 */
import type { Queryable } from "../db/database.ts";
import {
  type AppName,
  type AppRecord,
  findApp,
  findReleases,
  listApps,
  listAppsById,
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

async function readAll(db: Queryable, found: readonly AppRecord[]): Promise<readonly AppReading[]> {
  if (found.length === 0) return [];
  const ids = found.map(({ id }) => id);
  const rollouts = await listLastRollouts(db, ids);
  const [apps, rows, leases] = await Promise.all([listAppsById(db, ids), listInstances(db, ids), listLeases(db)]);
  const rolloutOf = new Map(rollouts.map((rollout) => [rollout.appId, rollout]));
  const rowsOf = Map.groupBy(rows, ({ appId }) => appId);
  const known = apps.map((app) => {
    return { app, rollout: rolloutOf.get(app.id), rows: rowsOf.get(app.id) ?? [], leases };
  });
  const names = known.flatMap(({ app, rollout, rows: own }) => {
    const shown = [rollout?.to ?? 0, app.currentRelease ?? 0, app.lastRelease];
    const numbers = new Set([...own.map(({ release }) => release), ...shown]);
    return [...numbers].map((number) => ({ appId: app.id, number }));
  });
  const releases = Map.groupBy(await findReleases(db, names), ({ appId }) => appId);
  return known.map((each) => {
    const own = releases.get(each.app.id) ?? [];
    return { ...each, releases: new Map(own.map((release) => [release.number, release])) };
  });
}
