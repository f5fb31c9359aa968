/**
 * Every SQL statement for uploads that have begun and not ended.
 *
 * Always: a row is there as long as the backend may have parts of the upload, so that it can be ended there.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { keepLooseBlob, type LooseBlob } from "./store.ts";

export interface UploadRow {
  readonly id: string;
  readonly repository: string;
  readonly tenantId: string | null;
  readonly location: string;
  readonly bytes: number;
}

const COLUMNS = sql`id, repository, tenant_id AS "tenantId", location, bytes`;

/** False: the tenant has `max` uploads already. */
export const insertUpload = async (
  db: Queryable,
  upload: UploadRow & { readonly now: number; readonly max: number },
): Promise<boolean> =>
  (await db.execute(sql`
    INSERT INTO registry_uploads (id, repository, tenant_id, location, bytes, updated_at)
    SELECT ${upload.id}, ${upload.repository}, ${upload.tenantId}, ${upload.location}, ${upload.bytes}::bigint,
      ${instantOf(upload.now)}::timestamptz
    WHERE (SELECT count(*) FROM registry_uploads WHERE tenant_id IS NOT DISTINCT FROM ${upload.tenantId}) < ${upload.max}`)) >
  0;

export const findUpload = (
  db: Queryable,
  { id, repository }: Pick<UploadRow, "id" | "repository">,
): Promise<UploadRow | undefined> =>
  db.queryOne<UploadRow>(sql`
    SELECT ${COLUMNS} FROM registry_uploads WHERE id = ${id} AND repository = ${repository}`);

/** Writes what the backend has of it now. */
export const growUpload = (
  db: Queryable,
  { id, location, bytes, now }: Pick<UploadRow, "id" | "location" | "bytes"> & { readonly now: number },
): Promise<number> =>
  db.execute(sql`
    UPDATE registry_uploads SET location = ${location}, bytes = ${bytes}, updated_at = ${instantOf(now)}::timestamptz
    WHERE id = ${id}`);

export const deleteUpload = (db: Queryable, id: string): Promise<number> =>
  db.execute(sql`DELETE FROM registry_uploads WHERE id = ${id}`);

/** The upload has become a blob. */
export const completeUpload = (db: Database, id: string, blob: LooseBlob): Promise<void> =>
  db.transaction(async (transaction) => {
    await deleteUpload(transaction, id);
    await keepLooseBlob(transaction, blob);
  });

/** Uploads that have not grown since the instant, oldest first. */
export const listAbandoned = (
  db: Queryable,
  { before, max }: { readonly before: number; readonly max: number },
): Promise<readonly UploadRow[]> =>
  db.query<UploadRow>(sql`
    SELECT ${COLUMNS} FROM registry_uploads WHERE updated_at < ${instantOf(before)}::timestamptz
    ORDER BY updated_at LIMIT ${max}`);
