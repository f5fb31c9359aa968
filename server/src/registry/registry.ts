/**
 * The registry of packages, as other rooms use it: what it has, who may push to it, and what is removed.
 *
 * Always:
 * - What a tenant may read follows from rows alone (store.ts), whatever the backend has.
 * - While a lease is live, nothing of its repository is removed from the backend.
 */
import type { Context } from "../context.ts";
import type { PackageFacts } from "./facts.ts";
import { endLeases, takeLease } from "./lease-store.ts";
import {
  deleteTag,
  findManifest,
  findTagged,
  listTags,
  type ManifestRow,
  readUsedBytes,
  removeManifest,
  type TagRow,
} from "./store.ts";
import { isDigest } from "@flotilla/contract/reference";
import { Refusal } from "@flotilla/contract/errors";

/** How long a lease lasts after its last use. */
const LEASE_MS = 10 * 60_000;
/** How long a new lease waits for a collection that runs. */
const COLLECTION_WAIT_MS = 60_000;
const COLLECTION_LOOK_MS = 250;
/** The most that a list returns. */
const LISTED_MAX = 10_000;

export interface FoundManifest {
  readonly digest: string;
  /** null: it was looked for by its digest. */
  readonly tag: string | null;
  /** What it and all that it names take. */
  readonly bytes: number;
  /** null: it is not a machine's disk. */
  readonly facts: PackageFacts | null;
  readonly mediaType: string;
  readonly artifactType: string | null;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

export interface FoundTag extends FoundManifest {
  readonly repository: string;
  readonly tag: string;
  /** Epoch milliseconds. */
  readonly updatedAt: number;
}

export interface LeaseRequest {
  readonly repository: string;
  /** What has it, such as the id of an operation. */
  readonly holder: string;
  /** The node that may push to the repository meanwhile; null: none. */
  readonly nodeId: string | null;
  readonly tenantId: string | null;
}

export class Registry {
  readonly #context: Context;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Whether it has a backend that answers. */
  isAvailable(): boolean {
    return false;
  }

  /** `target`: a tag or a digest. Whether the caller may read the repository is not decided here. */
  async find({
    repository,
    target,
  }: {
    readonly repository: string;
    readonly target: string;
  }): Promise<FoundManifest | null> {
    const { db } = this.#context;
    if (isDigest(target)) {
      const row = await findManifest(db, { repository, digest: target });
      return row === undefined ? null : foundOf(row, null);
    }
    const row = await findTagged(db, { repository, tag: target });
    return row === undefined ? null : foundOf(row, target);
  }

  /** By repository, newest first. */
  async list(of: { readonly tenantId: string; readonly includesLibrary: boolean }): Promise<readonly FoundTag[]> {
    const rows = await listTags(this.#context.db, { ...of, max: LISTED_MAX });
    return rows.map(foundTagOf);
  }

  /** Whether there was such a tag. */
  removeTag(repository: string, tag: string): Promise<boolean> {
    return deleteTag(this.#context.db, { repository, tag, now: this.#context.clock.now() });
  }

  /** Removes it and its tags. Whether there was one. Throws a Refusal if an index names it. */
  async removeManifest(repository: string, digest: string): Promise<boolean> {
    const done = await removeManifest(this.#context.db, { repository, digest, now: this.#context.clock.now() });
    if (done === "named")
      throw new Refusal("conflict", `an index of ${repository} names ${digest}; delete the index first`);
    return done === "removed";
  }

  /** What a tenant stores. */
  usedBytes(tenantId: string): Promise<number> {
    return readUsedBytes(this.#context.db, tenantId);
  }

  /**
   * Begins a lease, or makes it longer. Waits while a collection runs. Throws a Refusal when that takes too
   * long.
   */
  async lease(request: LeaseRequest, signal?: AbortSignal): Promise<void> {
    const { db, clock } = this.#context;
    const deadline = clock.monotonic() + COLLECTION_WAIT_MS;
    while (true) {
      signal?.throwIfAborted();
      const now = clock.now();
      if (await takeLease(db, { ...request, now, expiresAt: now + LEASE_MS })) return;
      if (clock.monotonic() >= deadline)
        throw new Refusal("unavailable", "the registry deletes what nothing uses any more; try again in a minute", {
          headers: { "retry-after": "10" },
        });
      await clock.sleep(COLLECTION_LOOK_MS, signal);
    }
  }

  /** Ends the leases of the holder. */
  async release(holder: string): Promise<void> {
    await endLeases(this.#context.db, holder);
  }
}

const foundOf = (row: ManifestRow, tag: string | null): FoundManifest => ({
  ...{ digest: row.digest, tag, bytes: row.bytes, facts: row.facts },
  ...{ mediaType: row.mediaType, artifactType: row.artifactType, createdAt: row.createdAt },
});

const foundTagOf = (row: TagRow): FoundTag => ({
  ...foundOf(row, row.tag),
  ...{ repository: row.repository, tag: row.tag, updatedAt: row.updatedAt },
});
