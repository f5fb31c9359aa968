/**
 * Promotes, scales and destroys apps: what a request changes in rows, under the lock of the app's row.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OperationKind } from "@flotilla/contract/operations";
import type { Queryable } from "../db/database.ts";
import type { MachineServices } from "../machines/services.ts";
import { notFound } from "../missing.ts";
import { writeOperation } from "../operations/begin.ts";
import { requestCancel } from "../operations/store.ts";
import { act } from "./acts.ts";
import { APP_OPERATION_MS_MAX, type Asked, presentRelease, situationOf, supersede } from "./deploy.ts";
import { refuseUnfit } from "./fit.ts";
import { readApp, requireApp } from "./reading.ts";
import { type AppRequest, DECISIONS } from "./requests.ts";
import { instanceOf } from "./instances.ts";
import { stepApp } from "./step.ts";
import {
  type AppName,
  type AppRecord,
  changeApp,
  findActiveRollout,
  listInstances,
  listLeases,
  lockAppByName,
  markDestroyed,
  markPromoted,
  noteEvents,
  type RolloutRecord,
} from "./store.ts";
import type { AppReading } from "./view.ts";

type Change = Extract<AppRequest, "promote" | "scale" | "destroy">;
const OPERATIONS: Readonly<Record<Change, OperationKind>> = {
  promote: "app promote",
  scale: "app scale",
  destroy: "app destroy",
};
const STEPS: Readonly<Record<Change, string>> = {
  promote: "replace the other instances",
  scale: "reach the number of instances",
  destroy: "end its instances",
};

interface Changing {
  readonly app: AppRecord;
  readonly rollout: RolloutRecord | undefined;
  readonly db: Queryable;
  readonly now: number;
}

/** What an operation of a change watches. */
export interface ChangeInput {
  readonly appId: string;
  readonly rolloutId?: string;
  readonly count?: number;
}

/** Continues the rollout whose canaries serve. */
export async function promoteApp(services: MachineServices, name: AppName, asked: Asked): Promise<AppReading> {
  await changeUnderLock(services, "promote", name, asked, async ({ app, rollout, db, now }) => {
    if (rollout === undefined) throw new Error("a promotion is accepted while a rollout waits for it");
    await markPromoted(db, rollout.id);
    await changeApp(db, app, { keyId: asked.keyId, waitingFor: "its other instances to be replaced" }, now);
    const data = { release: rollout.to, reason: "a person asked for it" };
    await noteEvents(db, app.tenantId, [{ subjectId: app.id, event: { type: "app.promoted", data } }], now);
    return { appId: app.id, rolloutId: rollout.id };
  });
  return await readApp(services.context.db, name);
}

/** Sets how many instances serve. The same number changes nothing. */
export async function scaleApp(
  services: MachineServices,
  name: AppName,
  { count, ...asked }: Asked & { readonly count: number },
): Promise<AppReading> {
  const { db } = services.context;
  const before = await requireApp(db, name);
  if (before.count === count) return await readApp(db, name);
  const present = await presentRelease(db, before, await findActiveRollout(db, before.id));
  if (count > before.count && present !== undefined) {
    const { spec, resolvedImage: image } = present;
    await refuseUnfit(services, { tenantId: name.tenantId, appId: before.id, count, surge: 0, image, spec });
  }
  await changeUnderLock(services, "scale", name, asked, async ({ app, db: transaction, now }) => {
    await changeApp(transaction, app, { count, keyId: asked.keyId, waitingFor: `${count} instances to serve` }, now);
    const event = { type: "app.scaled", data: { from: app.count, to: count } } as const;
    await noteEvents(transaction, app.tenantId, [{ subjectId: app.id, event }], now);
    return { appId: app.id, count };
  });
  return await readApp(db, name);
}

/** How long an answer waits for ingresses. One that is silent may serve the app until its lease ends. */
const UNROUTE_MS_MAX = 10_000;
const UNROUTE_PERIOD_MS = 50;

/** Resolves when the app gets no more requests. Its instances end in their grace. */
export async function destroyApp(services: MachineServices, name: AppName, asked: Asked): Promise<void> {
  const { clock, db } = services.context;
  const { appId } = await changeUnderLock(
    services,
    "destroy",
    name,
    asked,
    async ({ app, rollout, db: transaction, now }) => {
      if (rollout !== undefined) await supersede(transaction, app, rollout, { by: "the app was destroyed", now });
      await markDestroyed(transaction, app.id, now);
      const event = { type: "app.destroyed", data: {} } as const;
      await noteEvents(transaction, app.tenantId, [{ subjectId: app.id, event }], now);
      return { appId: app.id };
    },
  );
  const until = clock.monotonic() + UNROUTE_MS_MAX;
  const step = await stepApp(services.context, appId);
  await db.notify("routes", appId);
  if (step !== undefined) await act(services, step.acts, asked.signal);
  while (clock.monotonic() < until && !asked.signal.aborted && (await isServed(db, appId)))
    await clock.sleep(UNROUTE_PERIOD_MS, asked.signal);
}

/** Whether an ingress may still send a request to one of its instances. */
async function isServed(db: Queryable, appId: string): Promise<boolean> {
  const leases = await listLeases(db);
  const rows = await listInstances(db, [appId]);
  return rows.some((row) => row.isRouted || !instanceOf(row, leases, false).isConfirmed);
}

/** Decides by what is under way, writes the change and its operation, and ends what it supersedes. */
async function changeUnderLock(
  services: Pick<MachineServices, "context">,
  request: Change,
  name: AppName,
  { operationId: id, tenantId }: Asked,
  write: (changing: Changing) => Promise<ChangeInput>,
): Promise<ChangeInput> {
  const { context } = services;
  const { db, clock } = context;
  const { input, superseded } = await db.transaction(async (transaction) => {
    const app = await lockAppByName(transaction, name);
    if (app === undefined) throw notFound("app", name.name);
    const rollout = await findActiveRollout(transaction, app.id);
    const { effect, why } = DECISIONS[request][situationOf(app, rollout)];
    if (effect === "refuse") {
      throw new Refusal(
        "conflict",
        `${request} of app ${app.name} is refused: ${why}; GET /v1/apps/${app.name}/explain says what it waits for`,
        { call: `GET /v1/apps/${app.name}/explain` },
      );
    }
    const written = await write({ app, rollout, db: transaction, now: clock.now() });
    await writeOperation(context, transaction, {
      id,
      tenantId,
      kind: OPERATIONS[request],
      resource: { kind: "app", id: app.id, name: app.name },
      input: written,
      steps: [STEPS[request]],
      deadlineMs: APP_OPERATION_MS_MAX,
    });
    return { input: written, superseded: effect === "destroy" ? rollout?.id : undefined };
  });
  if (superseded !== undefined) await requestCancel(context, { tenantId, id: superseded });
  await db.notify("operations", id);
  await db.notify("apps", input.appId);
  return input;
}
