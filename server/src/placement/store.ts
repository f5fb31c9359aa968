/**
 * Reads nodes together with their active machines. Writes nothing: nodes and machines have their own stores.
 */
import { type Queryable, sql } from "../db/database.ts";
import type { CandidateNode } from "./place.ts";

/** Nodes with the resources promised on them. */
export function listCandidates(db: Queryable): Promise<readonly CandidateNode[]> {
  return db.query<CandidateNode>(sql`
    SELECT n.id, n.address, n.status, n.labels ->> 'arch' AS arch, n.total_cpus AS "totalCpus",
      n.total_memory_mb AS "totalMemoryMb", n.available_memory_mb AS "availableMemoryMb",
      n.available_disk_gb AS "availableDiskGb", count(m.id)::int AS "activeMachines",
      coalesce(sum(m.cpus), 0)::int AS "activeCpus", coalesce(sum(m.memory_mb), 0)::int AS "activeMemoryMb"
    FROM nodes n LEFT JOIN machines m ON m.node_id = n.id AND m.is_active
    GROUP BY n.id`);
}
