/**
 * What owners see of an app: computed from its rows, never stored. Pure.
 */
import type { AppInfo, AppStatus, InstanceInfo, InstanceStatus, RolloutInfo } from "@flotilla/contract/apps";
import { APP_PORT_DEFAULT } from "@flotilla/contract/limits";
import type { MachineAddresses } from "../machines/addresses.ts";
import { factsOf } from "./facts-of.ts";
import { type InstanceRow, instanceId, type Lease } from "./instances.ts";
import type { AppFacts, Instance, Phase, Rollout } from "./rollout/facts.ts";
import { serves } from "./rollout/sides.ts";
import type { AppRecord, ReleaseRecord, RolloutRecord } from "./store.ts";

/** Everything that an app's view is made from. */
export interface AppReading {
  readonly app: AppRecord;
  /** The rollout that began last, also one that has ended. */
  readonly rollout: RolloutRecord | undefined;
  readonly releases: ReadonlyMap<number, ReleaseRecord>;
  readonly rows: readonly InstanceRow[];
  readonly leases: readonly Lease[];
}

type Addresses = Pick<MachineAddresses, "urlOf">;

/** The address that people use: its domain, or its name below the domain for machines and apps. */
export function urlOf(
  addresses: Addresses,
  { id, hostName, domain }: Pick<AppRecord, "id" | "hostName" | "domain">,
): string {
  const url = new URL(addresses.urlOf({ id, hostName }));
  // Without a domain for machines and apps there is a path for a machine; apps are below localhost then.
  if (domain !== null) url.hostname = domain;
  else if (url.pathname !== "/") url.hostname = `${hostName}.localhost`;
  url.pathname = "/";
  return url.href;
}

/** As it is in the header `Host`. */
export const hostOf = (addresses: Addresses, app: AppRecord): string => new URL(urlOf(addresses, app)).host;

const active = ({ rollout }: AppReading): RolloutRecord | undefined =>
  rollout?.endedAt === null ? rollout : undefined;

export const readingFacts = (reading: AppReading): AppFacts => factsOf({ ...reading, rollout: active(reading) });

export function appInfo(reading: AppReading, addresses: Addresses): AppInfo {
  const { app, rollout, releases, rows } = reading;
  const facts = readingFacts(reading);
  const shown = releases.get(active(reading)?.to ?? app.currentRelease ?? app.lastRelease);
  const byId = new Map(facts.instances.map((instance) => [instance.id, instance]));
  const instances = rows.flatMap((row) => {
    const instance = byId.get(row.machineId);
    return instance === undefined || instance.state === "gone" ? [] : [instanceInfo(row, instance)];
  });
  return {
    id: app.id,
    name: app.name,
    image: shown?.image ?? "",
    replicas: app.count,
    status: statusOf(app, facts),
    port: shown?.spec.port ?? APP_PORT_DEFAULT,
    domain: app.domain,
    instances,
    createdAt: instant(app.createdAt),
    updatedAt: instant(app.updatedAt),
    url: urlOf(addresses, app),
    release: app.currentRelease,
    message: app.failure === null ? null : `${app.failures} of its instances failed in a row; the last: ${app.failure}`,
    createdBy: app.createdBy,
    rollout: rollout === undefined ? null : rolloutInfo(app, rollout),
  };
}

const instant = (ms: number): string => new Date(ms).toISOString();

/** Its progress still says so between a promotion and the step that follows it. */
const isAwaitingPerson = ({ progress, isPromoted }: Rollout): boolean =>
  progress?.phase === "awaitingPromotion" && !isPromoted;

export function statusOf(app: AppRecord, facts: AppFacts): AppStatus {
  const { rollout } = facts;
  if (rollout !== null) return isAwaitingPerson(rollout) ? "awaitingPromotion" : "deploying";
  if (app.count === 0) return "stopped";
  const serving = facts.instances.filter(serves).length;
  if (serving >= app.count) return "running";
  if (facts.current === null) return "failed";
  // It has never served as many as are asked, and nothing has failed: they are on their way.
  if (!app.isDegraded && app.failure === null) return "deploying";
  return serving === 0 ? "failed" : "degraded";
}

function instanceInfo(row: InstanceRow, instance: Instance): InstanceInfo {
  const { machine, retiredWhy } = row;
  return {
    id: instanceId(row.machineId),
    nodeId: instance.nodeId ?? "",
    status: instanceStatus(instance),
    generation: row.release,
    hostPort: instance.state === "running" ? (machine?.hostPorts[0]?.hostPort ?? null) : null,
    machineId: row.machineId,
    isServing: serves(instance),
    openRequests: instance.openRequests,
    reason: retiredWhy ?? instance.reason,
  };
}

function instanceStatus({ state, health, retiredAt }: Instance): InstanceStatus {
  switch (state) {
    case "unmade":
    case "starting":
      return retiredAt === null ? "starting" : "draining";
    case "running":
      if (retiredAt !== null) return "draining";
      return health === "unknown" ? "starting" : health;
    case "failed":
      return retiredAt === null ? "failed" : "stopped";
    case "lost":
      return "lost";
    case "gone":
      return "stopped";
  }
}

/** null: it ended well, or another request ended it. */
function rolloutInfo(app: AppRecord, rollout: RolloutRecord): RolloutInfo | null {
  const { progress, endedAt, outcome, from, to, strategy, why } = rollout;
  if (endedAt !== null && outcome !== "failed") return null;
  const deadline = endedAt === null ? deadlineOf(rollout) : null;
  const message =
    endedAt === null
      ? `release ${to} ${from === null ? "is rolled out" : `replaces release ${from}`}${rollout.isPromoted ? ", and is promoted" : ""}`
      : `release ${to} was rolled back: ${why ?? "no reason is known"}`;
  return {
    phase: endedAt === null ? (progress?.phase ?? "placing") : "failed",
    strategy: strategy.type,
    from,
    to,
    message,
    waitingFor: endedAt === null ? app.waitingFor : null,
    startedAt: instant(rollout.startedAt),
    deadline: deadline === null ? null : instant(deadline),
    operationId: rollout.id,
  };
}

/** When the phase is over; null: it has no end. */
function deadlineOf({ progress, placingMs, checkingMs }: RolloutRecord): number | null {
  if (progress === null) return null;
  const { phase, phaseSince, servedSince } = progress;
  const ends: Readonly<Partial<Record<Phase, number>>> = {
    placing: phaseSince + placingMs,
    checking: phaseSince + checkingMs,
    routing: phaseSince + checkingMs,
  };
  const end = ends[phase];
  return end === undefined ? null : Math.min(end, servedSince + placingMs + checkingMs);
}
