/**
 * One step of an app: reads what there is, plans, and writes what the plan says, in one transaction under the
 * lock of the app's row. acts.ts then makes and deletes machines as the rows say.
 *
 * Always:
 * - Whatever a plan decided is in rows before anything is done about it, so a crash anywhere is followed by
 *   another step, of any server, that does it.
 * - A rollout has ended in the same commit as its effect on the app.
 */
import type { Context } from "../context.ts";
import type { Queryable } from "../db/database.ts";
import { type AppRows, factsOf } from "./facts-of.ts";
import { type InstanceRow, instanceId } from "./instances.ts";
import type { AppFacts, Instance, Plan } from "./rollout/facts.ts";
import { plan } from "./rollout/plan.ts";
import { serves } from "./rollout/sides.ts";
import {
  type AppRecord,
  endRollout,
  findActiveRollout,
  findReleases,
  listInstances,
  listLeases,
  lockApp,
  markPromoted,
  type Noted,
  noteEvents,
  type RolloutRecord,
} from "./store.ts";
import {
  addInstances,
  forgetInstances,
  noteSeen,
  removeInstances,
  retireInstances,
  routeInstances,
  saveApp,
  saveProgress,
} from "./step-store.ts";

/** After the first failure, and at most. */
const BACKOFF_MS = 1_000;
const BACKOFF_MS_MAX = 5 * 60_000;
/**
 * The row of an instance whose machine was never made is kept this long after its removal: a server that was
 * making it may still do so, and nothing would own the machine.
 */
const UNMADE_MS = 2 * 60_000;

/** What is to be done about machines. */
export interface Acts {
  readonly app: AppRecord;
  /** To be made and started, with their releases. */
  readonly make: readonly { readonly machineId: string; readonly release: number }[];
  /** To be stopped and deleted. */
  readonly remove: readonly InstanceRow[];
}

export interface Step {
  readonly acts: Acts;
  readonly planned: Plan;
  /** Something was written that another plan may follow at once. */
  readonly hasChanged: boolean;
  /** The version of the new table of targets; null: it stays. */
  readonly routeVersion: number | null;
}

/** undefined: there is no such app. */
export function stepApp(
  { db, clock, ids }: Pick<Context, "db" | "clock" | "ids">,
  appId: string,
): Promise<Step | undefined> {
  return db.transaction(async (transaction) => {
    const rows = await readRows(transaction, appId);
    if (rows === undefined) return undefined;
    const now = clock.now();
    const facts = factsOf(rows);
    const planned = withReason(plan(facts, now), rows.app);
    const added = planned.add.map(({ release }) => ({ machineId: ids.make("machine"), release }));
    const routeVersion = await write(transaction, { rows, facts, planned, added, now });
    return { acts: actsOf(rows, facts, planned, added), planned, hasChanged: changes(planned), routeVersion };
  });
}

/** A rollout that failed names why its last instance did, also when nothing is left of that. */
function withReason(planned: Plan, { failure }: AppRecord): Plan {
  const { end } = planned;
  if (end?.outcome !== "failed" || failure === null || end.why.includes(failure)) return planned;
  return { ...planned, end: { ...end, why: `${end.why}; the last instance that was replaced: ${failure}` } };
}

/** As they are in this transaction; the app is locked until its end. */
async function readRows(db: Queryable, appId: string): Promise<AppRows | undefined> {
  const app = await lockApp(db, appId);
  if (app === undefined) return undefined;
  return await rowsOf(db, app);
}

export async function rowsOf(db: Queryable, app: AppRecord): Promise<AppRows> {
  const rollout = await findActiveRollout(db, app.id);
  const rows = await listInstances(db, [app.id]);
  const leases = await listLeases(db);
  const numbers = new Set([...rows.map(({ release }) => release), app.currentRelease ?? 0, rollout?.to ?? 0]);
  const names = [...numbers].map((number) => ({ appId: app.id, number }));
  const releases = await findReleases(db, names);
  return { app, rollout, rows, leases, releases: new Map(releases.map((release) => [release.number, release])) };
}

/** What an app waits for between the end of a rollout and its next step. */
const AFTER = {
  succeeded: "the instances that its rollout replaced to end",
  failed: "the instances of its current release to serve",
} as const;

const changes = (planned: Plan): boolean =>
  planned.add.length + planned.retire.length + planned.remove.length > 0 ||
  planned.route !== null ||
  planned.promote !== null ||
  planned.end !== null;

interface Writing {
  readonly rows: AppRows;
  readonly facts: AppFacts;
  readonly planned: Plan;
  readonly added: readonly { readonly machineId: string; readonly release: number }[];
  readonly now: number;
}

async function write(db: Queryable, writing: Writing): Promise<number | null> {
  const { rows, facts, planned, added, now } = writing;
  const { app, rollout } = rows;
  await addInstances(db, app.id, added, now);
  await removeInstances(
    db,
    planned.remove.map(({ id }) => id),
    now,
  );
  await forgetInstances(db, forgotten(rows, facts, now));
  if (rollout !== undefined) {
    if (planned.promote !== null) await markPromoted(db, rollout.id);
    if (planned.progress !== null) await saveProgress(db, rollout.id, planned.progress);
    if (planned.end !== null) await endRollout(db, rollout.id, { ...planned.end, now });
  }
  await noteSeen(
    db,
    rows.rows.map(({ machineId, seen }) => ({ machineId, seen, isUnhealthy: isUnhealthy(facts, machineId) })),
  );
  const next = nextApp(writing);
  await saveApp(db, next, now);
  await noteEvents(db, app.tenantId, eventsOf(writing, next.isDegraded), now);
  // The version of the tables is locked from here to the commit. A row that leaves the table may be retired.
  const version = planned.route === null ? null : await routeInstances(db, app.id, planned.route.ids, now);
  await retireInstances(db, planned.retire, now);
  return version;
}

const stateOf = ({ instances }: AppFacts, id: string): Instance | undefined => instances.find((each) => each.id === id);
const isUnhealthy = (facts: AppFacts, id: string): boolean => {
  const instance = stateOf(facts, id);
  return instance?.state === "running" && instance.health === "unhealthy";
};

/** Instances of which nothing is left, and of which nothing can come. */
const forgotten = ({ rows }: AppRows, facts: AppFacts, now: number): readonly string[] =>
  rows
    .filter(({ machineId, machine, retiredAt, removedAt, isRouted }) => {
      if (retiredAt === null || removedAt === null || isRouted) return false;
      if (stateOf(facts, machineId)?.state !== "gone") return false;
      return machine !== null || now - removedAt >= UNMADE_MS;
    })
    .map(({ machineId }) => machineId);

function nextApp({ rows, facts, planned, now }: Writing): Parameters<typeof saveApp>[1] {
  const { app, rollout } = rows;
  const failed = planned.retire.filter(({ hasFailed }) => hasFailed);
  const isSettled = planned.waitingFor === null && failed.length === 0;
  // Failures that are longer ago than the longest wait have nothing to do with this one.
  const isFirst = app.retryAt === null || app.retryAt + BACKOFF_MS_MAX < now;
  const failures = failed.length > 0 ? (isFirst ? 1 : app.failures + 1) : app.failures;
  const waitMs = Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** Math.min(20, failures - 1));
  const serving = facts.instances.filter(serves).length;
  const unmade = rows.rows.flatMap(({ machine, removedAt }) =>
    machine === null && removedAt !== null ? [removedAt + UNMADE_MS] : [],
  );
  const wakes = [...(planned.wakeAt === null ? [] : [planned.wakeAt]), ...unmade];
  const succeeded = planned.end?.outcome === "succeeded" && rollout !== undefined;
  const wasWhole = app.waitingFor === null || app.waitingFor === AFTER.succeeded;
  const isWanted = facts.current !== null && !facts.isDestroyed && rollout === undefined;
  return {
    id: app.id,
    currentRelease: succeeded ? rollout.to : app.currentRelease,
    // What follows the end of a rollout is planned at once.
    waitingFor: planned.end === null ? planned.waitingFor : AFTER[planned.end.outcome],
    wakeAt: wakes.length === 0 ? null : Math.min(...wakes),
    failures,
    retryAt: failed.length > 0 ? now + waitMs : app.retryAt,
    failure: failed.at(-1)?.why ?? (isSettled ? null : app.failure),
    isDegraded: isWanted && serving < app.count && (app.isDegraded || wasWhole),
    isChanged: planned.end !== null || planned.promote !== null || planned.add.length + planned.retire.length > 0,
  };
}

function eventsOf({ rows, facts, planned }: Writing, isDegraded: boolean): readonly Noted[] {
  const { app, rollout } = rows;
  const about = (event: Noted["event"]): Noted => ({ subjectId: app.id, event });
  const serving = facts.instances.filter(serves).length;
  const reason = planned.waitingFor ?? "instances are replaced";
  return [
    ...rows.rows.flatMap((row) => healthEvent(app, row, facts)),
    ...planned.retire
      .filter(({ hasFailed }) => hasFailed)
      .map(({ id, why }): Noted => {
        const event = { type: "instance.replaced", data: { appId: app.id, reason: why } } as const;
        return { subjectId: instanceId(id), event };
      }),
    ...(rollout !== undefined && planned.promote !== null && !rollout.isPromoted
      ? [about({ type: "app.promoted", data: { release: rollout.to, reason: planned.promote.why } })]
      : []),
    ...(rollout !== undefined && planned.end !== null ? [about(endEvent(rollout, planned.end))] : []),
    ...(isDegraded && !app.isDegraded
      ? [about({ type: "app.degraded", data: { serving, count: app.count, reason } })]
      : []),
    ...(app.isDegraded && serving >= app.count ? [about({ type: "app.recovered", data: { count: app.count } })] : []),
  ];
}

function healthEvent(app: AppRecord, row: InstanceRow, facts: AppFacts): readonly Noted[] {
  const instance = stateOf(facts, row.machineId);
  if (instance === undefined || instance.retiredAt !== null || instance.state !== "running") return [];
  const subjectId = instanceId(row.machineId);
  if (instance.health === "unhealthy" && !row.wasUnhealthy) {
    const data = { appId: app.id, reason: instance.reason ?? "no reason is known" };
    return [{ subjectId, event: { type: "instance.unhealthy", data } }];
  }
  if (instance.health !== "healthy" || !row.wasUnhealthy) return [];
  return [{ subjectId, event: { type: "instance.healthy", data: { appId: app.id } } }];
}

function endEvent(
  { from, to: release }: RolloutRecord,
  { outcome, why: reason }: NonNullable<Plan["end"]>,
): Noted["event"] {
  if (outcome === "succeeded") return { type: "app.deployed", data: { release, reason } };
  if (from === null) return { type: "app.deployFailed", data: { release, reason } };
  return { type: "app.rolledBack", data: { release, to: from, reason } };
}

/** By state, so that what a dead server began is done too. */
function actsOf(rows: AppRows, facts: AppFacts, planned: Plan, added: Writing["added"]): Acts {
  const retired = new Set(planned.retire.map(({ id }) => id));
  const removed = new Set(planned.remove.map(({ id }) => id));
  const unmade = rows.rows.filter(
    ({ machineId, retiredAt }) =>
      retiredAt === null && !retired.has(machineId) && stateOf(facts, machineId)?.state === "unmade",
  );
  return {
    app: rows.app,
    make: [...unmade.map(({ machineId, release }) => ({ machineId, release })), ...added],
    remove: rows.rows.filter(
      ({ machineId, removedAt, machine }) =>
        (removedAt !== null || removed.has(machineId)) && machine !== null && machine.deletedAt === null,
    ),
  };
}
