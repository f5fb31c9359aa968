/**
 * The handlers of apps. Each one unpacks, calls a verb and wraps what it gets.
 */
import type { DeployRequest } from "@flotilla/contract/apps";
import { RELEASES_LISTED_MAX } from "@flotilla/contract/limits";
import type { HandlersOf, Request } from "../api/handler.ts";
import type { Caller } from "../auth/caller.ts";
import { logAnswer } from "../machines/logs/answer.ts";
import { logPart } from "../machines/logs/part.ts";
import type { MachineServices } from "../machines/services.ts";
import { destroyApp, promoteApp, scaleApp } from "./change.ts";
import { type Asked, deployApp, redeployApp, rollBackApp } from "./deploy.ts";
import { logsOf } from "./logs.ts";
import { explainApp, planDeploy } from "./plan-deploy.ts";
import { readApp, readApps, requireApp } from "./reading.ts";
import { releaseInfo } from "./releases-view.ts";
import { shareApp, unshareApp } from "./share.ts";
import { type AppName, listReleases } from "./store.ts";
import { type AppReading, appInfo } from "./view.ts";

type Names =
  | "listApps"
  | "deployApp"
  | "planDeploy"
  | "getApp"
  | "destroyApp"
  | "listAppLogs"
  | "createAppShare"
  | "removeAppShare"
  | "promoteApp"
  | "rollbackApp"
  | "listReleases"
  | "explainApp"
  | "redeployApp"
  | "scaleApp";

/** The part of a request that every change of an app needs. */
type Changing = Pick<Request, "signal" | "newId"> & { readonly caller: Caller };

const askedBy = (request: Changing): Asked => ({
  tenantId: request.caller.tenantId,
  keyId: request.caller.keyId,
  appId: request.newId("app"),
  operationId: request.newId("operation"),
  signal: request.signal,
});

const nameOf = ({
  caller,
  params,
}: {
  readonly caller: Caller;
  readonly params: { readonly name: string };
}): AppName => ({
  tenantId: caller.tenantId,
  name: params.name,
});

/** Volumes have no storage: they are accepted, and the answer says so. */
const unsupported = ({ volume }: DeployRequest): Readonly<Record<string, string>> =>
  volume === null || volume === undefined ? {} : { "x-unsupported": "volumes" };

export function appHandlers(services: MachineServices): HandlersOf<Names> {
  const { addresses, context } = services;
  const { db } = context;
  const shown = (reading: AppReading) => ({ status: 200, body: appInfo(reading, addresses) }) as const;
  return {
    listApps: async ({ caller }) => ({
      status: 200,
      body: (await readApps(db, caller.tenantId)).map((reading) => appInfo(reading, addresses)),
    }),
    getApp: async (request) => shown(await readApp(db, nameOf(request))),
    deployApp: async (request) => {
      const reading = await deployApp(services, request.body, askedBy(request));
      return { ...shown(reading), headers: unsupported(request.body) };
    },
    planDeploy: async ({ caller: { tenantId }, body, signal }) => ({
      status: 200,
      body: await planDeploy(services, body, { tenantId, signal }),
    }),
    destroyApp: async (request) => {
      await destroyApp(services, nameOf(request), askedBy(request));
      return { status: 204 };
    },
    createAppShare: async (request) => ({
      status: 200,
      body: await shareApp(services, nameOf(request), {
        keyId: request.caller.keyId,
        secretBytes: request.secretBytes,
      }),
    }),
    removeAppShare: async (request) => {
      await unshareApp(services, nameOf(request));
      return { status: 204 };
    },
    promoteApp: async (request) => shown(await promoteApp(services, nameOf(request), askedBy(request))),
    redeployApp: async (request) => shown(await redeployApp(services, nameOf(request), askedBy(request))),
    rollbackApp: async (request) => {
      const number = request.body?.release ?? null;
      return shown(await rollBackApp(services, nameOf(request), { ...askedBy(request), number }));
    },
    scaleApp: async (request) => {
      const { count } = request.body;
      return shown(await scaleApp(services, nameOf(request), { ...askedBy(request), count }));
    },
    listReleases: async (request) => {
      const app = await requireApp(db, nameOf(request));
      const releases = await listReleases(db, app.id, RELEASES_LISTED_MAX);
      return { status: 200, body: releases.map((release) => releaseInfo(app, release)) };
    },
    explainApp: async (request) => ({ status: 200, body: await explainApp(services, nameOf(request)) }),
    listAppLogs: async (request) => {
      const part = logPart(request.query);
      return logAnswer(request.params.name, part, await logsOf(services, nameOf(request), part));
    },
  };
}
