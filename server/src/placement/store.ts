/**
 * Reads nodes together with their active machines. Writes nothing: nodes and machines have their own stores.
 */
import { type Queryable, sql } from "../db/database.ts";
import type { CandidateNode } from "./place.ts";

/**
 * From `n`, a row of nodes. Active machines count on their node, and on the node to which they are being
 * moved to run there, as `node_admits_start` counts. The sum is made for each node: one over all machines,
 * joined to the nodes, takes twice as long.
 */
const PROMISED = sql`(
  SELECT count(*)::int AS machines, coalesce(sum(m.cpus), 0)::int AS cpus, coalesce(sum(m.memory_mb), 0)::int AS memory_mb
  FROM (
    SELECT p.cpus, p.memory_mb FROM machines p WHERE p.node_id = n.id AND p.is_active
    UNION ALL
    SELECT a.cpus, a.memory_mb FROM machines a WHERE a.move_node_id = n.id AND a.is_active AND NOT a.move_stops) m)`;

/** Columns of `n`, a row of nodes, and `m`, its PROMISED. */
const CANDIDATE_COLUMNS = sql`
  n.id, n.address, n.status, n.cordoned_at IS NOT NULL AS "isCordoned", n.labels ->> 'arch' AS arch, n.labels,
  n.total_cpus AS "totalCpus", n.used_cpus AS "usedCpus", n.total_memory_mb AS "totalMemoryMb", n.available_memory_mb AS "availableMemoryMb",
  n.available_disk_gb AS "availableDiskGb", n.pressure, m.machines AS "activeMachines", m.cpus AS "activeCpus",
  m.memory_mb AS "activeMemoryMb"`;

/** All nodes, with the resources promised on them. */
export const listCandidates = (db: Queryable): Promise<readonly CandidateNode[]> =>
  db.query<CandidateNode>(sql`SELECT ${CANDIDATE_COLUMNS} FROM nodes n CROSS JOIN LATERAL ${PROMISED} m`);

/** Candidates of these nodes that exist. */
export const findCandidates = (db: Queryable, ids: readonly string[]): Promise<readonly CandidateNode[]> =>
  db.query<CandidateNode>(sql`
    SELECT ${CANDIDATE_COLUMNS} FROM nodes n CROSS JOIN LATERAL ${PROMISED} m WHERE n.id = ANY(${ids}::text[])`);

/** An image, by its canonical name. */
export interface ImageQuery {
  readonly reference: string;
  /** null: any. */
  readonly architecture: string | null;
  /** The tenant that uses it: it may use local images, and those that it has fetched. */
  readonly tenantId: string;
}

/** The ids of the ready nodes that have reported the image. */
export async function listImageHolders(
  db: Queryable,
  { reference, architecture, tenantId }: ImageQuery,
): Promise<ReadonlySet<string>> {
  const found = await db.query<{ readonly id: string }>(sql`
    SELECT n.id FROM nodes n
    WHERE n.status = 'ready' AND n.id IN (
      SELECT i.node_id FROM node_images i
      WHERE i.reference = ${reference} AND (${architecture}::text IS NULL OR i.architecture = ${architecture})
        AND (i.tenant_id = ${tenantId} OR i.reference LIKE 'local/%'))`);
  return new Set(found.map(({ id }) => id));
}
