/**
 * Reads nodes together with their active machines. Writes nothing: nodes and machines have their own stores.
 */
import { type Queryable, sql } from "../db/database.ts";
import type { CandidateNode } from "./place.ts";

/** Active machines by their node, and by the node to which they are being moved to run there, as `node_admits_start` counts. */
const PROMISED = sql`(
  SELECT node_id, cpus, memory_mb FROM machines WHERE is_active
  UNION ALL SELECT move_node_id, cpus, memory_mb FROM machines WHERE is_active AND move_node_id IS NOT NULL AND NOT move_stops)`;

/** From `n`, a row of nodes, and `m`, its part of PROMISED. */
const CANDIDATE_COLUMNS = sql`
  n.id, n.address, n.status, n.cordoned_at IS NOT NULL AS "isCordoned", n.labels ->> 'arch' AS arch, n.labels,
  n.total_cpus AS "totalCpus", n.used_cpus AS "usedCpus", n.total_memory_mb AS "totalMemoryMb", n.available_memory_mb AS "availableMemoryMb",
  n.available_disk_gb AS "availableDiskGb", n.pressure, n.reserve, count(m.node_id)::int AS "activeMachines",
  coalesce(sum(m.cpus), 0)::int AS "activeCpus", coalesce(sum(m.memory_mb), 0)::int AS "activeMemoryMb"`;

/** All nodes, with the resources promised on them. */
export const listCandidates = (db: Queryable): Promise<readonly CandidateNode[]> =>
  db.query<CandidateNode>(sql`
    SELECT ${CANDIDATE_COLUMNS} FROM nodes n LEFT JOIN ${PROMISED} m ON m.node_id = n.id GROUP BY n.id`);

/** Those of the nodes that exist. */
export const findCandidates = (db: Queryable, ids: readonly string[]): Promise<readonly CandidateNode[]> =>
  db.query<CandidateNode>(sql`
    SELECT ${CANDIDATE_COLUMNS} FROM nodes n LEFT JOIN ${PROMISED} m ON m.node_id = n.id
    WHERE n.id = ANY(${ids}::text[]) GROUP BY n.id`);

/** An image, by its canonical name. */
export interface ImageQuery {
  readonly reference: string;
  /** null: any. */
  readonly architecture: string | null;
  /** The tenant that uses it: it may use local images, and those that it has fetched. */
  readonly tenantId: string;
}

export interface ImageHolder {
  readonly id: string;
  readonly address: string;
  /** Whether the node reports its images; a node of version 1 of the link does not. */
  readonly hasReported: boolean;
}

/** The nodes that are ready and have reported the image, and those that report no images. */
export function listImageHolders(
  db: Queryable,
  { reference, architecture, tenantId }: ImageQuery,
): Promise<readonly ImageHolder[]> {
  return db.query<ImageHolder>(sql`
    SELECT n.id, n.address, n.images_boot_id IS NOT NULL AS "hasReported" FROM nodes n
    WHERE n.status = 'ready' AND (n.images_boot_id IS NULL OR n.id IN (
      SELECT i.node_id FROM node_images i
      WHERE i.reference = ${reference} AND (${architecture}::text IS NULL OR i.architecture = ${architecture})
        AND (i.tenant_id = ${tenantId} OR i.reference LIKE 'local/%')))`);
}
