/**
 * Reads nodes together with their active machines. Writes nothing: nodes and machines have their own stores.
 */
import { type Queryable, sql } from "../db/database.ts";
import type { CandidateNode } from "./place.ts";

/** Nodes with the resources promised on them. */
export function listCandidates(db: Queryable): Promise<readonly CandidateNode[]> {
  return db.query<CandidateNode>(sql`
    SELECT n.id, n.address, n.status, n.cordoned_at IS NOT NULL AS "isCordoned", n.labels ->> 'arch' AS arch, n.labels,
      n.total_cpus AS "totalCpus", n.used_cpus AS "usedCpus", n.total_memory_mb AS "totalMemoryMb", n.available_memory_mb AS "availableMemoryMb",
      n.available_disk_gb AS "availableDiskGb", count(m.id)::int AS "activeMachines",
      coalesce(sum(m.cpus), 0)::int AS "activeCpus", coalesce(sum(m.memory_mb), 0)::int AS "activeMemoryMb"
    FROM nodes n LEFT JOIN machines m ON m.node_id = n.id AND m.is_active
    GROUP BY n.id`);
}

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
  readonly hasImage: boolean;
}

/** The nodes that are ready, and what they reported of an image. */
export function listImageHolders(
  db: Queryable,
  { reference, architecture, tenantId }: ImageQuery,
): Promise<readonly ImageHolder[]> {
  return db.query<ImageHolder>(sql`
    SELECT n.id, n.address, n.images_boot_id IS NOT NULL AS "hasReported",
      EXISTS (
        SELECT FROM node_images i
        WHERE i.node_id = n.id AND i.reference = ${reference}
          AND (${architecture}::text IS NULL OR i.architecture = ${architecture})
          AND (i.tenant_id = ${tenantId} OR i.reference LIKE 'local/%')) AS "hasImage"
    FROM nodes n WHERE n.status = 'ready' ORDER BY n.id`);
}
