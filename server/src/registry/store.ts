/**
 * Every SQL statement for manifests, tags and blobs of the registry. Leases and uploads have their own
 * stores.
 *
 * Always: what is removed is missing for every reader at once; its row stays until the backend has removed it
 * too.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { PackageFacts } from "./facts.ts";

export interface ManifestName {
  readonly repository: string;
  readonly digest: string;
}

export interface ManifestRow {
  readonly repository: string;
  readonly digest: string;
  readonly mediaType: string;
  readonly artifactType: string | null;
  readonly facts: PackageFacts | null;
  /** The size of it and of all that it names, each once. */
  readonly bytes: number;
  /** The size of the manifest alone. */
  readonly ownBytes: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

/** The size of a manifest `m` with what an index names, and each blob once. */
const WHOLE_BYTES = sql`(
  SELECT coalesce(sum(bytes), 0)::bigint FROM (
    SELECT digest, max(bytes) AS bytes FROM (
      SELECT o.digest, o.bytes FROM registry_manifests o
      WHERE o.repository = m.repository AND (o.digest = m.digest OR o.digest IN (
        SELECT child FROM registry_children c WHERE c.repository = m.repository AND c.parent = m.digest))
      UNION ALL
      SELECT b.digest, b.bytes FROM registry_blobs b
      WHERE b.repository = m.repository AND (b.manifest_digest = m.digest OR b.manifest_digest IN (
        SELECT child FROM registry_children c WHERE c.repository = m.repository AND c.parent = m.digest))
    ) AS parts GROUP BY digest) AS whole)`;

const COLUMNS = sql`m.repository, m.digest, m.media_type AS "mediaType", m.artifact_type AS "artifactType", m.facts,
  ${WHOLE_BYTES} AS bytes, m.bytes AS "ownBytes", ms(m.created_at) AS "createdAt"`;

export const findManifest = (db: Queryable, { repository, digest }: ManifestName): Promise<ManifestRow | undefined> =>
  db.queryOne<ManifestRow>(sql`
    SELECT ${COLUMNS} FROM registry_manifests m
    WHERE m.repository = ${repository} AND m.digest = ${digest} AND m.removed_at IS NULL`);

export const findTagged = (
  db: Queryable,
  { repository, tag }: { readonly repository: string; readonly tag: string },
): Promise<ManifestRow | undefined> =>
  db.queryOne<ManifestRow>(sql`
    SELECT ${COLUMNS} FROM registry_tags t JOIN registry_manifests m USING (repository, digest)
    WHERE t.repository = ${repository} AND t.tag = ${tag} AND m.removed_at IS NULL`);

export interface TagRow extends ManifestRow {
  readonly tag: string;
  /** Epoch milliseconds. */
  readonly updatedAt: number;
}

/** The tags of a tenant, and those of the library where that is asked for; by repository, newest first. */
export const listTags = (
  db: Queryable,
  {
    tenantId,
    includesLibrary,
    max,
  }: { readonly tenantId: string; readonly includesLibrary: boolean; readonly max: number },
): Promise<readonly TagRow[]> =>
  db.query<TagRow>(sql`
    SELECT ${COLUMNS}, t.tag, ms(t.updated_at) AS "updatedAt"
    FROM registry_manifests m JOIN registry_tags t USING (repository, digest)
    WHERE (m.tenant_id = ${tenantId} OR (${includesLibrary}::boolean AND m.tenant_id IS NULL)) AND m.removed_at IS NULL
    ORDER BY t.repository, t.updated_at DESC, t.tag LIMIT ${max}`);

/** Whether there was such a tag. Its manifest stays until it is swept. */
export const deleteTag = (
  db: Database,
  { repository, tag, now }: { readonly repository: string; readonly tag: string; readonly now: number },
): Promise<boolean> =>
  db.transaction(async (transaction) => {
    const gone = await transaction.queryOne<{ readonly digest: string }>(sql`
      DELETE FROM registry_tags WHERE repository = ${repository} AND tag = ${tag} RETURNING digest`);
    if (gone === undefined) return false;
    await transaction.execute(sql`
      UPDATE registry_manifests SET idle_since = ${instantOf(now)}::timestamptz
      WHERE repository = ${repository} AND digest = ${gone.digest}`);
    return true;
  });

/**
 * Removes a manifest and its tags for every reader. `named`: an index names it, so it stays. Whether there
 * was one.
 */
export const removeManifest = (
  db: Database,
  { repository, digest, now }: ManifestName & { readonly now: number },
): Promise<"removed" | "missing" | "named"> =>
  db.transaction(async (transaction) => {
    const found = await transaction.queryOne<{ readonly isNamed: boolean }>(sql`
      SELECT EXISTS (SELECT FROM registry_children c JOIN registry_manifests p ON p.repository = c.repository
          AND p.digest = c.parent AND p.removed_at IS NULL
        WHERE c.repository = m.repository AND c.child = m.digest) AS "isNamed"
      FROM registry_manifests m WHERE repository = ${repository} AND digest = ${digest} AND removed_at IS NULL
      FOR NO KEY UPDATE`);
    if (found === undefined) return "missing";
    if (found.isNamed) return "named";
    await transaction.execute(sql`DELETE FROM registry_tags WHERE repository = ${repository} AND digest = ${digest}`);
    await transaction.execute(sql`
      UPDATE registry_manifests SET removed_at = ${instantOf(now)}::timestamptz
      WHERE repository = ${repository} AND digest = ${digest}`);
    return "removed";
  });

/**
 * What a tenant stores, in bytes: each blob and manifest once, and what its uploads have sent so far.
 */
export async function readUsedBytes(db: Queryable, tenantId: string): Promise<number> {
  const row = await db.queryOne<{ readonly bytes: number }>(sql`
    SELECT (coalesce((SELECT sum(bytes) FROM (
        SELECT digest, max(bytes) AS bytes FROM (
          SELECT b.digest, b.bytes FROM registry_blobs b
          JOIN registry_manifests m ON m.repository = b.repository AND m.digest = b.manifest_digest
          WHERE m.tenant_id = ${tenantId} AND m.removed_at IS NULL
          UNION ALL SELECT digest, bytes FROM registry_manifests WHERE tenant_id = ${tenantId} AND removed_at IS NULL
          UNION ALL SELECT digest, bytes FROM registry_loose_blobs WHERE tenant_id = ${tenantId}
        ) AS parts GROUP BY digest) AS used), 0)
      + coalesce((SELECT sum(bytes) FROM registry_uploads WHERE tenant_id = ${tenantId}), 0))::bigint AS bytes`);
  return row?.bytes ?? 0;
}
