/**
 * What owners see of a release. Pure.
 */
import type { HealthCheck, ReleaseInfo } from "@flotilla/contract/apps";
import type { HealthSpec } from "./release.ts";
import type { AppRecord, ListedRelease } from "./store.ts";

export function releaseInfo(app: AppRecord, release: ListedRelease): ReleaseInfo {
  const { number, image, digest, why, spec, secretNames, outcome, outcomeReason, madeAt } = release;
  return {
    ...{ number, image, digest, why, outcome, outcomeReason },
    isCurrent: app.currentRelease === number,
    env: Object.entries(spec.env).map(([key, value]) => ({ key, value })),
    secretEnvNames: [...secretNames],
    cpus: spec.cpus,
    memoryMb: spec.memoryMb,
    port: spec.port,
    health: spec.health && healthCheck(spec.health),
    network: spec.hasNetwork,
    stopGraceSecs: spec.graceMs / 1000,
    createdAt: new Date(madeAt).toISOString(),
  };
}

const healthCheck = ({ type, path, port, command, intervalMs, timeoutMs, retries }: HealthSpec): HealthCheck => ({
  type,
  ...(path === null ? {} : { path }),
  ...(port === null ? {} : { port }),
  ...(command === null ? {} : { command: [...command] }),
  intervalSecs: intervalMs / 1000,
  timeoutSecs: timeoutMs / 1000,
  retries,
});
