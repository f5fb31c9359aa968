/**
 * The registry of packages, as other rooms use it: what it has, who may push to it, and what is removed.
 *
 * Always:
 * - What a tenant may read follows from rows alone (store.ts), whatever the backend has.
 * - While a lease is live, nothing of its repository is removed from the backend.
 */
import { Refusal } from "@flotilla/contract/errors";
import { isDigest } from "@flotilla/contract/reference";
import type { Context } from "../context.ts";
import type { Ceilings } from "../usage/quota.ts";
import type { Backend } from "./backend.ts";
import type { PackageFacts } from "./facts.ts";
import { endLeaseIfDone, endLeases, takeLease } from "./lease-store.ts";
import { denied, type OciError, unavailable } from "./oci-error.ts";
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

/** How long a lease lasts after its last use. */
const LEASE_MS = 10 * 60_000;
/** A lease that was made longer so recently is not made longer again. */
const FRESH_MS = 2_000;
const FRESH_MAX = 10_000;
/** How long a new lease waits for a collection that runs. */
const COLLECTION_WAIT_MS = 60_000;
const COLLECTION_LOOK_MS = 250;
/** The most that a list returns, and that a tenant may have. */
export const MANIFESTS_MAX = 10_000;
const GB = 1024 ** 3;
const NO_BACKEND = "this server has no registry for packages; its operator can set FLOTILLA_REGISTRY";

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

export interface RegistryOptions {
  readonly context: Context;
  /** null: there is none. */
  readonly backend: Backend | null;
  readonly ceilingsOf: (tenantId: string) => Promise<Pick<Ceilings, "maxPackageGb" | "planName">>;
}

export class Registry {
  readonly #options: RegistryOptions;
  readonly #context: Context;
  /** When leases were last made longer here, by holder and repository. */
  readonly #fresh = new Map<string, number>();

  constructor(options: RegistryOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** Whether this server has a registry, so that it takes exports from those that wait. */
  get isConfigured(): boolean {
    return this.#options.backend !== null;
  }

  /** Whether it has a backend that serves. */
  isAvailable(): boolean {
    return this.#options.backend?.fault === null;
  }

  /** Throws a Refusal when packages cannot be stored or read now. */
  requireAvailable(): void {
    const { backend } = this.#options;
    const fault = backend === null ? NO_BACKEND : backend.fault;
    if (fault !== null) throw new Refusal("unavailable", fault);
  }

  /** Throws an OciError when there is none, or it does not serve. */
  get backend(): Backend {
    const { backend } = this.#options;
    if (backend === null) throw unavailable(NO_BACKEND, 60);
    if (backend.fault !== null) throw unavailable(backend.fault);
    return backend;
  }

  /** Whether blobs that no manifest names are deleted by this server. */
  get isCollected(): boolean {
    return this.#options.backend !== null && this.#options.backend.collect !== null;
  }

  /** `target`: a tag or a digest. Whether the caller may read the repository is not decided here. */
  async find(at: { readonly repository: string; readonly target: string }): Promise<FoundManifest | null> {
    const row = await this.findRow(at);
    return row === undefined ? null : foundOf(row, isDigest(at.target) ? null : at.target);
  }

  findRow({
    repository,
    target,
  }: {
    readonly repository: string;
    readonly target: string;
  }): Promise<ManifestRow | undefined> {
    const { db } = this.#context;
    return isDigest(target)
      ? findManifest(db, { repository, digest: target })
      : findTagged(db, { repository, tag: target });
  }

  /** By repository, newest first. */
  async list(of: { readonly tenantId: string; readonly includesLibrary: boolean }): Promise<readonly FoundTag[]> {
    const rows = await listTags(this.#context.db, { ...of, max: MANIFESTS_MAX });
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
   * How many more bytes may be stored. `declared`: how many are about to come; null: not known. Throws an
   * OciError when they do not fit into the tenant's plan, or on the disk.
   */
  async roomFor(tenantId: string | null, declared: number | null): Promise<number> {
    const free = await this.backend.freeBytes();
    if (free !== null && free < (declared ?? 1))
      throw unavailable("the registry's disk is nearly full; delete packages, or ask the operator for room", 60);
    const ofDisk = free ?? Number.POSITIVE_INFINITY;
    if (tenantId === null) return ofDisk;
    const { maxPackageGb, planName } = await this.#options.ceilingsOf(tenantId);
    if (maxPackageGb === null) return ofDisk;
    const used = await this.usedBytes(tenantId);
    const left = maxPackageGb * GB - used;
    if (left < (declared ?? 1)) throw quotaRefusal({ maxPackageGb, planName }, used, declared);
    return Math.min(ofDisk, left);
  }

  /**
   * Begins a lease, or makes it longer. Waits while a collection runs. Throws a Refusal when that takes too
   * long.
   */
  async lease(request: LeaseRequest, signal?: AbortSignal): Promise<void> {
    const { db, clock } = this.#context;
    const name = `${request.holder} ${request.repository}`;
    const startedAt = clock.monotonic();
    if (startedAt - (this.#fresh.get(name) ?? Number.NEGATIVE_INFINITY) < FRESH_MS) return;
    while (true) {
      signal?.throwIfAborted();
      const now = clock.now();
      if (await takeLease(db, { ...request, now, expiresAt: now + LEASE_MS })) break;
      if (clock.monotonic() >= startedAt + COLLECTION_WAIT_MS)
        throw new Refusal("unavailable", "the registry deletes what nothing uses any more; try again in a minute", {
          headers: { "retry-after": "10" },
        });
      await clock.sleep(COLLECTION_LOOK_MS, signal);
    }
    if (this.#fresh.size >= FRESH_MAX) this.#fresh.clear();
    this.#fresh.set(name, clock.monotonic());
  }

  /** Ends the leases of the holder. */
  async release(holder: string): Promise<void> {
    for (const name of this.#fresh.keys()) if (name.startsWith(`${holder} `)) this.#fresh.delete(name);
    await endLeases(this.#context.db, holder);
  }

  /**
   * Ends the holder's lease of a repository after a push. A key may be used by several pushes at once, so its
   * lease stays while something is there that another manifest is to name.
   */
  async releaseAfterPush(
    { holder, repository }: Pick<LeaseRequest, "holder" | "repository">,
    isOnePush: boolean,
  ): Promise<void> {
    const { db } = this.#context;
    this.#fresh.delete(`${holder} ${repository}`);
    await (isOnePush ? endLeases(db, holder, repository) : endLeaseIfDone(db, holder, repository));
  }

  async stop(): Promise<void> {
    await this.#options.backend?.stop();
  }
}

function quotaRefusal(
  { maxPackageGb, planName }: { readonly maxPackageGb: number; readonly planName: string },
  used: number,
  declared: number | null,
): OciError {
  const more = declared === null ? "" : ` and ${gb(declared)} are to come`;
  return denied(
    `package limit reached: your ${planName} plan allows ${maxPackageGb} GB of packages, ${gb(used)} are in use${more}; delete packages, or ask the operator for a larger plan`,
  );
}

const gb = (bytes: number): string => `${(bytes / GB).toFixed(2)} GB`;

const foundOf = (row: ManifestRow, tag: string | null): FoundManifest => ({
  ...{ digest: row.digest, tag, bytes: row.bytes, facts: row.facts },
  ...{ mediaType: row.mediaType, artifactType: row.artifactType, createdAt: row.createdAt },
});

const foundTagOf = (row: TagRow): FoundTag => ({
  ...foundOf(row, row.tag),
  ...{ repository: row.repository, tag: row.tag, updatedAt: row.updatedAt },
});
