/**
 * What machines on a node are made of, as the registry's nodes may read it.
 *
 * Writes nothing: the tables belong to machines and to this room's store.ts.
 */
import { OWN_REGISTRY } from "@flotilla/contract/reference";
import { type Queryable, sql } from "../db/database.ts";

/**
 * Whether a machine that is placed on the node names the manifest in that repository, or one that names the
 * digest.
 */
export async function mayNodeRead(
  db: Queryable,
  { nodeId, repository, digest }: { readonly nodeId: string; readonly repository: string; readonly digest: string },
): Promise<boolean> {
  const prefix = `${OWN_REGISTRY}/${repository}@`;
  const row = await db.queryOne(sql`
    SELECT FROM machines m
    WHERE m.node_id = ${nodeId} AND m.deleted_at IS NULL AND m.source ->> 'pulledAs' IN (
      SELECT ${prefix} || ${digest}
      UNION ALL SELECT ${prefix} || b.manifest_digest FROM registry_blobs b
      WHERE b.repository = ${repository} AND b.digest = ${digest}
      UNION ALL SELECT ${prefix} || c.parent FROM registry_children c
      WHERE c.repository = ${repository} AND (c.child = ${digest} OR c.child IN (
        SELECT b.manifest_digest FROM registry_blobs b WHERE b.repository = ${repository} AND b.digest = ${digest})))
    LIMIT 1`);
  return row !== undefined;
}
