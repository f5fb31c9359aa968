/**
 * Deploys, redeploys and rolls back: from a request to a frozen release and a rollout of it, as rows.
 *
 * Always:
 * - The image's digest is known, and the change fits, before anything is written. Then everything is written
 *   in one transaction under the lock of the app's row, or nothing is.
 * - A deploy of the inputs that the app has, or that are being rolled out, begins no rollout.
 * - A repetition under an idempotency key has the same operation, and finds the rollout that it began.
 */
import type { DeployRequest } from "@flotilla/contract/apps";
import { Refusal } from "@flotilla/contract/errors";
import type { OperationKind } from "@flotilla/contract/operations";
import type { Queryable } from "../db/database.ts";
import type { MachineServices } from "../machines/services.ts";
import { writeOperation } from "../operations/begin.ts";
import { requestCancel } from "../operations/store.ts";
import { notFound } from "../missing.ts";
import { refuseUnfit } from "./fit.ts";
import { readOne, requireApp } from "./reading.ts";
import {
  checkDomain,
  checkName,
  type Course,
  courseOf,
  differences,
  type Inputs,
  secretsOf,
  specOf,
  surgeOf,
} from "./release.ts";
import { DECISIONS, type Situation } from "./requests.ts";
import { resolveImage } from "./resolve.ts";
import {
  type AppName,
  type AppRecord,
  changeApp,
  endRollout,
  findActiveRollout,
  findAnyApp,
  findApp,
  findGoodReleaseBefore,
  findRelease,
  findRollout,
  insertApp,
  insertRelease,
  insertRollout,
  lockApp,
  lockAppByName,
  noteEvents,
  type ReleaseRecord,
  type RolloutRecord,
  readMaxApps,
  takeDomain,
} from "./store.ts";
import type { AppReading } from "./view.ts";

/** The caller, and the ids that a repetition has too. */
export interface Asked {
  readonly tenantId: string;
  readonly keyId: string;
  readonly appId: string;
  readonly operationId: string;
  readonly signal: AbortSignal;
}

type Kind = "deploy" | "redeploy" | "rollback";
const OPERATIONS: Readonly<Record<Kind, OperationKind>> = {
  deploy: "app deploy",
  redeploy: "app redeploy",
  rollback: "app rollback",
};

/**
 * An operation ends when its rollout does, or waits for a person. Each batch of instances has its own
 * deadline.
 */
export const APP_OPERATION_MS_MAX = 7 * 24 * 3600_000;

/** What a request wants: a release, and what of the app itself it names; undefined: as before. */
export interface Deployment {
  readonly inputs: Inputs;
  readonly resolvedImage: string;
  readonly course: Course;
  /** Why the release is made, in a sentence. */
  readonly why: string;
  /** Whether equal inputs are rolled out as well. */
  readonly isForced: boolean;
  readonly count?: number | undefined;
  readonly domain?: string | undefined;
  readonly isPublic?: boolean | undefined;
  readonly coLocateWith?: string | undefined;
}

export async function deployApp(services: MachineServices, request: DeployRequest, asked: Asked): Promise<AppReading> {
  const name = { tenantId: asked.tenantId, name: checkName(request.name) };
  const repeated = await findRepeated(services, asked);
  if (repeated !== undefined) return repeated;
  return await rollOut(services, "deploy", { asked, name, deployment: await deploymentOf(services, request, asked) });
}

/**
 * The release and the rest that a request names. Throws Refusals that name the field, and those of its image.
 */
export async function deploymentOf(
  services: MachineServices,
  request: DeployRequest,
  { tenantId, signal }: Pick<Asked, "tenantId" | "signal">,
): Promise<Deployment> {
  const { image } = request;
  const spec = specOf(request);
  const secretEnv = secretsOf(request);
  const domain = request.domain ? checkDomain(request.domain, services.addresses) : undefined;
  const { digest, exposedPort, reference } = await resolveImage(services, { tenantId, image, spec, signal });
  return {
    inputs: { image, digest, spec: specOf(request, exposedPort), secretEnv },
    resolvedImage: reference,
    course: courseOf(request),
    why: `${image} was deployed`,
    isForced: false,
    count: request.replicas ?? undefined,
    domain,
    isPublic: request.publicIngress ?? undefined,
    coLocateWith: request.coLocateWith ?? undefined,
  };
}

/** Asks the registry again what the image is, and replaces all instances. */
export async function redeployApp(services: MachineServices, name: AppName, asked: Asked): Promise<AppReading> {
  const repeated = await findRepeated(services, asked);
  if (repeated !== undefined) return repeated;
  const { db } = services.context;
  const app = await requireApp(db, name);
  const present = (await presentRelease(db, app, await findActiveRollout(db, app.id))) ?? (await lastRelease(db, app));
  const { image, spec } = present;
  const { digest, reference } = await resolveImage(services, {
    tenantId: app.tenantId,
    image,
    spec,
    signal: asked.signal,
  });
  const inputs = { ...inputsOf(services, present), digest };
  const why = `release ${present.number} was redeployed`;
  const deployment = { inputs, resolvedImage: reference, course: present.course, why, isForced: true };
  return await rollOut(services, "redeploy", { asked, name, deployment });
}

async function lastRelease(db: Queryable, app: AppRecord): Promise<ReleaseRecord> {
  const last = await findRelease(db, app.id, app.lastRelease);
  if (last === undefined) throw new Error(`app ${app.id} has no release ${app.lastRelease}`);
  return last;
}

/**
 * Makes a new release from the inputs of an earlier one. `number`: null: the good one before the present one.
 */
export async function rollBackApp(
  services: MachineServices,
  name: AppName,
  { number, ...asked }: Asked & { readonly number: number | null },
): Promise<AppReading> {
  const repeated = await findRepeated(services, asked);
  if (repeated !== undefined) return repeated;
  const { db } = services.context;
  const app = await requireApp(db, name);
  const target = number === null ? await goodRelease(db, app) : await findRelease(db, app.id, number);
  if (target === undefined) throw noRelease(app, number);
  const inputs = inputsOf(services, target);
  const why = `rolled back to the inputs of release ${target.number}`;
  const deployment = { inputs, resolvedImage: target.resolvedImage, course: target.course, why, isForced: true };
  return await rollOut(services, "rollback", { asked, name, deployment });
}

function noRelease({ name }: AppRecord, number: number | null): Refusal {
  const lack = number === null ? "no earlier release that was rolled out" : `no release ${number}`;
  return new Refusal(
    number === null ? "conflict" : "not_found",
    `app ${name} has ${lack}; GET /v1/apps/${name}/releases lists them`,
    { ...(number === null ? {} : { field: "release" }), call: `GET /v1/apps/${name}/releases` },
  );
}

/** What serves now where a rollout is under way; otherwise the one before that. */
async function goodRelease(db: Queryable, app: AppRecord): Promise<ReleaseRecord | undefined> {
  if (app.currentRelease === null) return undefined;
  if ((await findActiveRollout(db, app.id)) !== undefined) return await findRelease(db, app.id, app.currentRelease);
  return await findGoodReleaseBefore(db, app.id, app.currentRelease);
}

export function inputsOf({ secrets }: Pick<MachineServices, "secrets">, release: ReleaseRecord): Inputs {
  const { image, digest, spec, secretEnv, appId } = release;
  return { image, digest, spec, secretEnv: secretEnv === null ? {} : secrets.open(appId, secretEnv) };
}

/** The release that is rolled out, or that is being so; undefined: none was. */
export async function presentRelease(
  db: Queryable,
  app: AppRecord,
  rollout: RolloutRecord | undefined,
): Promise<ReleaseRecord | undefined> {
  const number = rollout?.to ?? app.currentRelease;
  return number === null ? undefined : await findRelease(db, app.id, number);
}

export const situationOf = (app: AppRecord | undefined, rollout: RolloutRecord | undefined): Situation => {
  if (app === undefined) return "none";
  if (rollout === undefined) return "settled";
  return rollout.isPromoted ? "switched" : (rollout.progress?.phase ?? "placing");
};

async function findRepeated(
  { context: { db } }: MachineServices,
  { operationId, tenantId }: Asked,
): Promise<AppReading | undefined> {
  const rollout = await findRollout(db, operationId);
  const app = rollout && (await findAnyApp(db, rollout.appId));
  return app?.tenantId === tenantId ? await readOne(db, app) : undefined;
}

interface RollingOut {
  readonly asked: Asked;
  readonly name: AppName;
  readonly deployment: Deployment;
}

async function rollOut(services: MachineServices, kind: Kind, out: RollingOut): Promise<AppReading> {
  const { context } = services;
  const { db } = context;
  await refuseDeployment(services, out);
  const written = await db.transaction((transaction) => writeDeployment(services, transaction, kind, out));
  if (written.superseded !== null)
    await requestCancel(context, { tenantId: out.name.tenantId, id: written.superseded });
  if (written.hasBegun) await db.notify("operations", out.asked.operationId);
  // Its host name, its domain and who may reach it may be others.
  await db.notify("routes", written.appId);
  await db.notify("apps", written.appId);
  return await readOne(db, (await findAnyApp(db, written.appId)) ?? (await requireApp(db, out.name)));
}

/** Whether the inputs differ from those that the app has, or it has none. */
async function isNews(
  services: Pick<MachineServices, "context" | "secrets">,
  app: AppRecord | undefined,
  { inputs, isForced }: Deployment,
): Promise<boolean> {
  if (app === undefined || isForced) return true;
  const { db } = services.context;
  const present = await presentRelease(db, app, await findActiveRollout(db, app.id));
  return present === undefined || differences(inputsOf(services, present), inputs).length > 0;
}

export async function refuseDeployment(
  services: MachineServices,
  { name, deployment }: Omit<RollingOut, "asked">,
): Promise<void> {
  const app = await findApp(services.context.db, name);
  const count = deployment.count ?? app?.count ?? 1;
  const surge = (await isNews(services, app, deployment)) ? surgeOf(deployment.course.strategy, count) : 0;
  const { inputs, resolvedImage: image } = deployment;
  await refuseUnfit(services, {
    tenantId: name.tenantId,
    appId: app?.id ?? null,
    count,
    surge,
    image,
    spec: inputs.spec,
  });
}

interface Written {
  readonly appId: string;
  /** The operation whose rollout was ended; null: none was. */
  readonly superseded: string | null;
  readonly hasBegun: boolean;
}

async function writeDeployment(
  services: MachineServices,
  db: Queryable,
  kind: Kind,
  out: RollingOut,
): Promise<Written> {
  const { asked, name, deployment } = out;
  const now = services.context.clock.now();
  const known = await lockAppByName(db, name);
  if (known === undefined && kind !== "deploy") throw notFound("app", name.name);
  const app = known ?? (await makeApp(db, out, now));
  const rollout = await findActiveRollout(db, app.id);
  const { effect, why: reason } = DECISIONS[kind][situationOf(known, rollout)];
  if (effect === "refuse") throw new Refusal("conflict", `app ${app.name} cannot be changed: ${reason}`);
  if (
    deployment.domain !== undefined &&
    deployment.domain !== app.domain &&
    !(await takeDomain(db, app, deployment.domain))
  )
    throw new Refusal("conflict", `domain ${deployment.domain} is taken; choose another one`, { field: "domain" });
  const present = await presentRelease(db, app, rollout);
  const changed = present === undefined ? [] : differences(inputsOf(services, present), deployment.inputs);
  const change = {
    ...(deployment.count === undefined ? {} : { count: deployment.count }),
    ...(deployment.isPublic === undefined ? {} : { isPublic: deployment.isPublic }),
    ...(deployment.coLocateWith === undefined ? {} : { coLocateWith: deployment.coLocateWith }),
    keyId: asked.keyId,
    waitingFor: "its instances to be made",
  };
  await changeApp(db, app, change, now);
  if (present !== undefined && changed.length === 0 && !deployment.isForced)
    return { appId: app.id, superseded: null, hasBegun: false };
  const to = await freeze(services, db, app, { asked, deployment, changed, now });
  if (rollout !== undefined) await supersede(db, app, rollout, { by: `release ${to} was requested`, now });
  await begin(services, db, { app, kind, asked, course: deployment.course, to, now });
  return { appId: app.id, superseded: rollout?.id ?? null, hasBegun: true };
}

async function makeApp(db: Queryable, { asked, name, deployment }: RollingOut, now: number): Promise<AppRecord> {
  const { appId: id, keyId } = asked;
  const app = {
    id,
    ...name,
    count: deployment.count ?? 1,
    domain: null,
    coLocateWith: deployment.coLocateWith ?? null,
    isPublic: deployment.isPublic ?? true,
    createdBy: keyId,
  };
  const outcome = await insertApp(db, app, now);
  if (outcome === "overCount") {
    const max = await readMaxApps(db, name.tenantId);
    const text = `app count quota exceeded: your plan allows ${max} apps; destroy one, or ask the operator for a larger plan`;
    throw new Refusal("quota_exceeded", text, { limit: { of: "maxApps", bound: "<=", value: max } });
  }
  const made = outcome === "inserted" ? await lockApp(db, id) : await lockAppByName(db, name);
  if (made === undefined)
    throw new Refusal("conflict", `app ${name.name} is being changed by another request; try again`);
  return made;
}

interface Freezing {
  readonly asked: Asked;
  readonly deployment: Deployment;
  /** In what its inputs differ from those before. */
  readonly changed: readonly string[];
  readonly now: number;
}

/** Writes the release. Returns its number. */
async function freeze(
  { secrets }: Pick<MachineServices, "secrets">,
  db: Queryable,
  app: AppRecord,
  { asked, deployment, changed, now }: Freezing,
): Promise<number> {
  const { inputs, resolvedImage, course, why } = deployment;
  const number = app.lastRelease + 1;
  const secretNames = Object.keys(inputs.secretEnv).toSorted();
  await insertRelease(db, {
    appId: app.id,
    number,
    image: inputs.image,
    resolvedImage,
    digest: inputs.digest,
    spec: inputs.spec,
    secretEnv: secretNames.length === 0 ? null : secrets.seal(app.id, inputs.secretEnv),
    secretNames,
    course,
    why: changed.length === 0 ? why : `${why}; ${changed.join("; ")}`,
    madeBy: asked.keyId,
    madeAt: now,
  });
  return number;
}

/** Ends a rollout for another request. */
export async function supersede(
  db: Queryable,
  app: AppRecord,
  { id, to: release }: RolloutRecord,
  { by, now }: { readonly by: string; readonly now: number },
): Promise<void> {
  if (!(await endRollout(db, id, { outcome: "superseded", why: by, now }))) return;
  await noteEvents(
    db,
    app.tenantId,
    [{ subjectId: app.id, event: { type: "app.superseded", data: { release, reason: by } } }],
    now,
  );
}

interface Beginning {
  readonly app: AppRecord;
  readonly kind: Kind;
  readonly asked: Asked;
  readonly course: Course;
  readonly to: number;
  readonly now: number;
}

async function begin(
  { context }: Pick<MachineServices, "context">,
  db: Queryable,
  { app, kind, asked, course, to, now }: Beginning,
): Promise<void> {
  const { id: appId, tenantId, currentRelease: from } = app;
  await insertRollout(db, { id: asked.operationId, appId, from, to, course, now });
  await writeOperation(context, db, {
    id: asked.operationId,
    tenantId,
    kind: OPERATIONS[kind],
    resource: { kind: "app", id: appId, name: app.name },
    input: { appId, rolloutId: asked.operationId },
    steps: [`roll out release ${to}`],
    deadlineMs: APP_OPERATION_MS_MAX,
  });
  const why = from === null ? "it is the first one" : `it replaces release ${from}`;
  const data = { release: to, strategy: course.strategy.type, why };
  await noteEvents(db, tenantId, [{ subjectId: appId, event: { type: "app.deployBegun", data } }], now);
}
