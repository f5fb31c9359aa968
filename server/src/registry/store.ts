/**
 * Every SQL statement for manifests, tags and blobs of the registry. Leases and uploads have their own
 * stores.
 *
 * Always: what is removed is missing for every reader at once; its row stays until the backend has removed it
 * too.
 */
import { OWN_REGISTRY } from "@flotilla/contract/reference";
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { PackageFacts } from "./facts.ts";
import type { BlobPart, ReadManifest } from "./manifest.ts";

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

/** The tags of one repository in alphabetical order, after `last`. undefined: there is no such repository. */
export async function listTagNames(
  db: Queryable,
  { repository, last, max }: { readonly repository: string; readonly last: string; readonly max: number },
): Promise<readonly string[] | undefined> {
  const rows = await db.query<{ readonly tag: string }>(sql`
    SELECT tag FROM registry_tags WHERE repository = ${repository} AND tag COLLATE "C" > ${last}
    ORDER BY tag COLLATE "C" LIMIT ${max}`);
  if (rows.length > 0) return rows.map(({ tag }) => tag);
  const known = await db.queryOne(sql`
    SELECT FROM registry_manifests WHERE repository = ${repository} AND removed_at IS NULL LIMIT 1`);
  return known === undefined ? undefined : [];
}

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

/** The size of a blob that a manifest of the repository names, or that was uploaded there. */
export async function findBlob(db: Queryable, { repository, digest }: ManifestName): Promise<number | undefined> {
  const row = await db.queryOne<{ readonly bytes: number }>(sql`
    SELECT b.bytes FROM registry_blobs b
    JOIN registry_manifests m ON m.repository = b.repository AND m.digest = b.manifest_digest AND m.removed_at IS NULL
    WHERE b.repository = ${repository} AND b.digest = ${digest}
    UNION ALL SELECT bytes FROM registry_loose_blobs WHERE repository = ${repository} AND digest = ${digest}
    LIMIT 1`);
  return row?.bytes;
}

export interface LooseBlob extends ManifestName {
  readonly tenantId: string | null;
  readonly bytes: number;
  readonly now: number;
}

/** Records that the backend has a blob of the repository. */
export const keepLooseBlob = (
  db: Queryable,
  { repository, digest, tenantId, bytes, now }: LooseBlob,
): Promise<number> =>
  db.execute(sql`
    INSERT INTO registry_loose_blobs (repository, digest, tenant_id, bytes, uploaded_at)
    VALUES (${repository}, ${digest}, ${tenantId}, ${bytes}, ${instantOf(now)}::timestamptz)
    ON CONFLICT (repository, digest) DO UPDATE SET uploaded_at = excluded.uploaded_at`);

/** Forgets a blob that the backend does not have any more. */
export const forgetLooseBlob = (db: Queryable, { repository, digest }: ManifestName): Promise<number> =>
  db.execute(sql`DELETE FROM registry_loose_blobs WHERE repository = ${repository} AND digest = ${digest}`);

/**
 * Forgets blobs that were uploaded before the instant and that nothing names or is about to: another registry
 * deletes them by its own rules, and until then no caller reads them.
 */
export const forgetOldLooseBlobs = (
  db: Queryable,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<number> =>
  db.execute(sql`
    DELETE FROM registry_loose_blobs b WHERE b.uploaded_at < ${instantOf(before)}::timestamptz
      AND NOT EXISTS (SELECT FROM registry_leases l
        WHERE l.repository = b.repository AND l.expires_at >= ${instantOf(now)}::timestamptz)`);

export interface PutManifest extends ReadManifest {
  readonly repository: string;
  readonly tenantId: string | null;
  readonly ownBytes: number;
  readonly tag: string | null;
  readonly now: number;
}

/**
 * Whether the manifest may be sent to the backend now; false: a server is removing it there, for a moment
 * more. One that was removed for readers only stays, and is not removed in the backend meanwhile.
 */
export async function beginPut(
  db: Queryable,
  { repository, digest, now }: ManifestName & { readonly now: number },
): Promise<boolean> {
  const at = instantOf(now);
  const row = await db.queryOne<{ readonly isRemoving: boolean }>(sql`
    WITH kept AS (
      UPDATE registry_manifests SET idle_since = ${at}::timestamptz
      WHERE repository = ${repository} AND digest = ${digest} AND (removing_until IS NULL OR removing_until < ${at}::timestamptz))
    SELECT removing_until >= ${at}::timestamptz AS "isRemoving" FROM registry_manifests
    WHERE repository = ${repository} AND digest = ${digest}`);
  return row?.isRemoving !== true;
}

/** What a manifest names that the repository lacks: blobs and manifests, at most ten. */
export async function findUnknown(
  db: Queryable,
  { repository, blobs, children }: Pick<PutManifest, "repository" | "blobs" | "children">,
): Promise<readonly string[]> {
  const rows = await db.query<{ readonly digest: string }>(sql`
    SELECT n.digest FROM unnest(${blobs.map(({ digest }) => digest)}::text[]) AS n (digest)
    WHERE NOT EXISTS (SELECT FROM registry_blobs b WHERE b.repository = ${repository} AND b.digest = n.digest)
      AND NOT EXISTS (SELECT FROM registry_loose_blobs l WHERE l.repository = ${repository} AND l.digest = n.digest)
    UNION ALL
    SELECT n.digest FROM unnest(${children}::text[]) AS n (digest)
    WHERE NOT EXISTS (SELECT FROM registry_manifests m
      WHERE m.repository = ${repository} AND m.digest = n.digest AND m.removed_at IS NULL)
    LIMIT 10`);
  return rows.map(({ digest }) => digest);
}

/** The known sizes of blobs in the repository. */
export const listBlobSizes = (
  db: Queryable,
  { repository, digests }: { readonly repository: string; readonly digests: readonly string[] },
): Promise<readonly BlobPart[]> =>
  db.query<BlobPart>(sql`
    SELECT digest, max(bytes)::bigint AS bytes FROM (
      SELECT digest, bytes FROM registry_blobs WHERE repository = ${repository} AND digest = ANY(${digests}::text[])
      UNION ALL
      SELECT digest, bytes FROM registry_loose_blobs WHERE repository = ${repository} AND digest = ANY(${digests}::text[])
    ) AS known GROUP BY digest`);

/** Writes what the backend has: manifest, what it names, and its tag. */
export const putManifest = (db: Database, put: PutManifest): Promise<void> =>
  db.transaction(async (transaction) => {
    const { repository, digest, blobs, children } = put;
    const at = instantOf(put.now);
    await transaction.execute(sql`
      INSERT INTO registry_manifests (repository, digest, tenant_id, media_type, artifact_type, bytes, facts, created_at, idle_since)
      VALUES (${repository}, ${digest}, ${put.tenantId}, ${put.mediaType}, ${put.artifactType}, ${put.ownBytes},
        ${put.facts === null ? null : JSON.stringify(put.facts)}::jsonb, ${at}::timestamptz, ${at}::timestamptz)
      ON CONFLICT (repository, digest) DO UPDATE
      SET removed_at = NULL, removing_until = NULL, idle_since = excluded.idle_since`);
    await transaction.execute(sql`
      INSERT INTO registry_blobs (repository, manifest_digest, digest, bytes)
      SELECT ${repository}, ${digest}, b.digest, b.bytes
      FROM unnest(${blobs.map((each) => each.digest)}::text[], ${blobs.map((each) => each.bytes)}::bigint[]) AS b (digest, bytes)
      ON CONFLICT DO NOTHING`);
    await transaction.execute(sql`
      INSERT INTO registry_children (repository, parent, child)
      SELECT ${repository}, ${digest}, child FROM unnest(${children}::text[]) AS child ON CONFLICT DO NOTHING`);
    await transaction.execute(sql`
      DELETE FROM registry_loose_blobs
      WHERE repository = ${repository} AND digest = ANY(${blobs.map((each) => each.digest)}::text[])`);
    if (put.tag !== null) await setTag(transaction, { ...put, tag: put.tag });
  });

async function setTag(
  transaction: Queryable,
  { repository, tag, digest, now }: ManifestName & { readonly tag: string; readonly now: number },
): Promise<void> {
  const at = instantOf(now);
  // What the tag named before is idle from now on.
  await transaction.execute(sql`
    UPDATE registry_manifests m SET idle_since = ${at}::timestamptz FROM registry_tags t
    WHERE t.repository = ${repository} AND t.tag = ${tag} AND m.repository = t.repository AND m.digest = t.digest`);
  await transaction.execute(sql`
    INSERT INTO registry_tags (repository, tag, digest, updated_at)
    VALUES (${repository}, ${tag}, ${digest}, ${at}::timestamptz)
    ON CONFLICT (repository, tag) DO UPDATE SET digest = excluded.digest, updated_at = excluded.updated_at`);
}

/** How many manifests a tenant has. */
export async function countManifests(db: Queryable, tenantId: string): Promise<number> {
  const row = await db.queryOne<{ readonly count: number }>(sql`
    SELECT count(*) FROM registry_manifests WHERE tenant_id = ${tenantId}`);
  return row?.count ?? 0;
}

/**
 * Takes manifests to remove from the backend until then: those that were removed, and those without a tag and
 * without an index that names them, idle since before the instant. Not where a lease is live, and not what a
 * machine was made from that has never run.
 */
export const claimUnused = (
  db: Queryable,
  {
    now,
    until,
    idleBefore,
    max,
  }: { readonly now: number; readonly until: number; readonly idleBefore: number; readonly max: number },
): Promise<readonly ManifestName[]> =>
  db.query<ManifestName>(sql`
    UPDATE registry_manifests u SET removing_until = ${instantOf(until)}::timestamptz, removed_at = coalesce(u.removed_at, ${instantOf(now)}::timestamptz)
    FROM (SELECT m.repository, m.digest FROM registry_manifests m
      WHERE (m.removed_at IS NOT NULL OR m.idle_since < ${instantOf(idleBefore)}::timestamptz)
        AND (m.removing_until IS NULL OR m.removing_until < ${instantOf(now)}::timestamptz)
        AND NOT EXISTS (SELECT FROM registry_tags t WHERE t.repository = m.repository AND t.digest = m.digest)
        AND NOT EXISTS (SELECT FROM registry_children c WHERE c.repository = m.repository AND c.child = m.digest)
        AND NOT EXISTS (SELECT FROM registry_leases l
          WHERE l.repository = m.repository AND l.expires_at >= ${instantOf(now)}::timestamptz)
        AND (m.removed_at IS NOT NULL OR NOT EXISTS (SELECT FROM machines o
          WHERE o.source ->> 'pulledAs' = ${OWN_REGISTRY} || '/' || m.repository || '@' || m.digest
            AND o.deleted_at IS NULL AND NOT o.has_run))
      ORDER BY m.idle_since LIMIT ${max} FOR UPDATE SKIP LOCKED) AS unused
    WHERE u.repository = unused.repository AND u.digest = unused.digest
    RETURNING u.repository, u.digest`);

/**
 * Deletes the row of a manifest that the backend does not have any more. What it named is idle from now on.
 */
export const deleteManifest = (
  db: Database,
  { repository, digest, now }: ManifestName & { readonly now: number },
): Promise<void> =>
  db.transaction(async (transaction) => {
    await transaction.execute(sql`
      UPDATE registry_manifests m SET idle_since = ${instantOf(now)}::timestamptz FROM registry_children c
      WHERE c.repository = ${repository} AND c.parent = ${digest} AND m.repository = c.repository AND m.digest = c.child`);
    await transaction.execute(sql`
      DELETE FROM registry_manifests WHERE repository = ${repository} AND digest = ${digest} AND removing_until IS NOT NULL`);
  });

/** What the registry has, for metrics. `at`: now. */
export async function readFigures(
  db: Queryable,
  at: string,
): Promise<{ readonly bytes: number; readonly manifests: number; readonly uploads: number; readonly leases: number }> {
  const row = await db.queryOne<Awaited<ReturnType<typeof readFigures>>>(sql`
    SELECT (SELECT count(*) FROM registry_manifests WHERE removed_at IS NULL) AS manifests,
      (SELECT count(*) FROM registry_uploads) AS uploads,
      (SELECT count(*) FROM registry_leases WHERE expires_at >= ${at}::timestamptz) AS leases,
      (SELECT coalesce(sum(bytes), 0)::bigint FROM (
        SELECT DISTINCT repository, digest, bytes FROM registry_blobs
        UNION SELECT repository, digest, bytes FROM registry_manifests
        UNION SELECT repository, digest, bytes FROM registry_loose_blobs) AS stored) AS bytes`);
  return row ?? { bytes: 0, manifests: 0, uploads: 0, leases: 0 };
}
