/**
 * Removes from the backend what is not needed any more: manifests that were deleted, or that no tag and no
 * index names for an hour, and uploads that were abandoned.
 *
 * Reads and writes the tables of the registry through its stores. Servers that sweep at the same time claim
 * different manifests, and an upload that another one has ended is missing in the backend, which is as good.
 *
 * A server that dies in between leaves rows that are claimed again a minute later.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { Context } from "../context.ts";
import type { Reconciler } from "../family.ts";
import { discard, refusalOfBackend } from "./backend.ts";
import { cancelAt } from "./blobs.ts";
import type { Registry } from "./registry.ts";
import { claimUnused, deleteManifest, forgetOldLooseBlobs, type ManifestName } from "./store.ts";
import { deleteUpload, listAbandoned } from "./upload-store.ts";

const BATCH_MAX = 50;
const IDLE_MS = 60 * 60_000;
const ABANDONED_MS = 24 * 60 * 60_000;
/** Longer than the backend takes to remove a batch. */
const CLAIM_MS = 60_000;

type Parts = { readonly context: Context; readonly registry: Registry };

export function sweepReconciler({ context, registry }: Parts): Reconciler {
  return {
    name: "packages-sweep",
    purpose: "removes manifests that were deleted or that nothing names, and abandoned uploads, from the registry",
    periodMs: 10_000,
    wakeOn: [],
    async activate(signal) {
      const counts = { manifests: 0, uploads: 0 };
      const errors: string[] = [];
      if (!registry.isAvailable()) return { counts, errors };
      const { db, clock } = context;
      const now = clock.now();
      const each = async (what: string, work: () => Promise<void>, count: keyof typeof counts): Promise<void> => {
        if (signal.aborted) return;
        try {
          await work();
          counts[count] += 1;
        } catch (error) {
          errors.push(`${what}: ${ownMessageOf(error)}`);
        }
      };
      const abandoned = await listAbandoned(db, { before: now - ABANDONED_MS, max: BATCH_MAX });
      for (const { id, repository, location } of abandoned)
        await each(
          `upload ${id}`,
          async () => {
            await cancelAt({ registry }, repository, new URL(location));
            await deleteUpload(db, id);
          },
          "uploads",
        );
      // A collection does the same for the server's own registry.
      if (!registry.isCollected) await forgetOldLooseBlobs(db, { before: now - ABANDONED_MS, now });
      const claim = { now, until: now + CLAIM_MS, idleBefore: now - IDLE_MS, max: BATCH_MAX };
      const unused = await claimUnused(db, claim);
      for (const name of unused)
        await each(
          `${name.repository} ${name.digest}`,
          async () => {
            await removeIn(registry, name);
            await deleteManifest(db, { ...name, now: clock.now() });
          },
          "manifests",
        );
      return { counts, errors, hasMore: errors.length === 0 && unused.length === BATCH_MAX };
    },
  };
}

/** Removes the manifest from the backend, if it has it. */
async function removeIn({ backend }: Registry, { repository, digest }: ManifestName): Promise<void> {
  const url = backend.urlOf(repository, `manifests/${digest}`);
  const answer = await backend.send({ method: "DELETE", url, repository, isWrite: true });
  if (answer.status >= 300 && answer.status !== 404) throw await refusalOfBackend(answer);
  await discard(answer);
}
