/**
 * What owners see of a release. Pure.
 */
import type { ReleaseInfo } from "@flotilla/contract/apps";
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
    createdAt: new Date(madeAt).toISOString(),
  };
}
