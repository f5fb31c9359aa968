/**
 * Deletes tags of packages of which their owner keeps only the newest ones.
 *
 * Reads package_retention and tags, and deletes tags through the registry. Two servers may find the same tag:
 * the one that deletes it writes its event. If the server dies in between, a tag is gone without its event.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { Context } from "../context.ts";
import type { Reconciler } from "../family.ts";
import type { Registry } from "../registry/registry.ts";
import { listExceeded, listExcess, type RetentionRow, writePackageEvent } from "./store.ts";

const REPOSITORIES_PER_ACTIVATION_MAX = 100;

export function retentionReconciler(context: Context, registry: Pick<Registry, "removeTag">): Reconciler {
  return {
    name: "packages",
    purpose: "deletes tags of packages of which only the newest are kept",
    periodMs: 5_000,
    wakeOn: [],
    async activate() {
      const exceeded = await listExceeded(context.db, REPOSITORIES_PER_ACTIVATION_MAX);
      const errors: string[] = [];
      let deleted = 0;
      for (const retention of exceeded)
        try {
          deleted += await applyRetention(context, registry, retention);
        } catch (error) {
          errors.push(`${retention.repository}: ${ownMessageOf(error)}`);
        }
      const hasMore = errors.length === 0 && exceeded.length === REPOSITORIES_PER_ACTIVATION_MAX;
      return { counts: { deleted }, errors, hasMore };
    },
  };
}

/** Returns how many tags were deleted. */
async function applyRetention(
  context: Context,
  registry: Pick<Registry, "removeTag">,
  retention: RetentionRow,
): Promise<number> {
  const { repository, tenantId } = retention;
  let deleted = 0;
  for (const { tag, digest } of await listExcess(context.db, retention)) {
    if (!(await registry.removeTag(repository, tag))) continue;
    deleted += 1;
    const data = { reference: `${repository}:${tag}`, digest, cause: "retention" as const };
    await writePackageEvent(context, { tenantId, repository }, { type: "package.deleted", data });
  }
  return deleted;
}
