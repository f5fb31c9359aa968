/**
 * Writes the rows of `fleet-size` directly: nodes, tenants, machines that have run for a day, their runs and
 * usage.
 */
import { createHash } from "node:crypto";
import { type Database, sql } from "../../server/src/db/database.ts";
import { credentialOf, hostOf, MACHINES_EACH, nodeId, STARTING_TENANTS, STARTS_EACH, tenantId } from "./fleet.ts";

export interface FleetRows {
  readonly planId: string;
  /** Where the simulated nodes listen. */
  readonly port: number;
  /** The first and the last node, which are also the numbers of their tenants. */
  readonly from: number;
  readonly to: number;
}

/** No statement of the bench may take longer than one of a server. */
const NODES_AT_A_TIME = 100;

/** The last report of each node is in the future, so that none is found silent while rows are written. */
export async function writeFleet(db: Database, rows: FleetRows): Promise<void> {
  // Building the constraint against overlapping intervals takes minutes, and only writers of overlaps need
  // it.
  await db.execute(sql`ALTER TABLE usage_intervals DROP CONSTRAINT IF EXISTS nothing_twice`);
  for (let from = rows.from; from <= rows.to; from += NODES_AT_A_TIME)
    await writePart(db, { ...rows, from, to: Math.min(rows.to, from + NODES_AT_A_TIME - 1) });
  // A database of that age has been analyzed, and its pages are known to be visible to all.
  for (const statement of [
    sql`VACUUM ANALYZE usage_intervals`,
    sql`VACUUM ANALYZE machines`,
    sql`VACUUM ANALYZE machine_runs`,
    sql`VACUUM ANALYZE tenants`,
    sql`VACUUM ANALYZE nodes`,
  ])
    await db.execute(statement);
}

async function writePart(db: Database, { planId, port, from, to }: FleetRows): Promise<void> {
  const nodes = Array.from({ length: to - from + 1 }, (_, index) => index + from).map((n) => ({
    ...{ id: nodeId(n), tenant: tenantId(n), address: `http://${hostOf(n)}:${port}` },
    hash: createHash("sha256").update(credentialOf(n)).digest("hex"),
    starts: n >= 2 && n <= STARTING_TENANTS ? STARTS_EACH : 0,
  }));
  const fleet = sql`jsonb_to_recordset(${JSON.stringify(nodes)}::jsonb) AS f(id text, tenant text, address text, hash text, starts int)`;
  const since = sql`now() - interval '1 day'`;
  await db.transaction(async (transaction) => {
    // Triggers would write the rows that follow here.
    await transaction.execute(sql`SET LOCAL session_replication_role = replica`);
    await transaction.execute(sql`
      INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at, total_cpus, total_memory_mb,
        available_memory_mb, total_disk_gb, available_disk_gb, images_boot_id, images_sequence)
      SELECT id, address, 'ready', decode(hash, 'hex'), ${since}, now() + interval '1 hour', 64, 262144, 200000, 2000, 1500, 'agent', 1 FROM ${fleet}`);
    await transaction.execute(sql`
      INSERT INTO node_images (node_id, reference, architecture) SELECT id, 'local/busybox:latest', 'amd64' FROM ${fleet}`);
    await transaction.execute(
      sql`INSERT INTO tenants (id, name, plan_id) SELECT tenant, tenant, ${planId} FROM ${fleet}`,
    );
    await transaction.execute(
      sql`INSERT INTO tenant_plans (tenant_id, plan_id, active_from) SELECT tenant, ${planId}, 'epoch' FROM ${fleet}`,
    );
    await transaction.execute(sql`
      INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, desired_state, generation, desired_at, node_id, has_run, observed_state,
        observed_generation, observed_boot_id, revision)
      SELECT m.id, m.tenant, '{"type": "image", "reference": "local/busybox"}', '{"mode": "open"}', '{}', '[]', '{}', 2, 2048, 20,
        false, false, false, ${since}, ${since}, CASE WHEN m.runs THEN 'running' ELSE 'stopped' END, 1, ${since},
        CASE WHEN m.runs THEN m.node END, m.runs, CASE WHEN m.runs THEN 'running' ELSE 'absent' END, m.runs::int,
        CASE WHEN m.runs THEN 'boot-' || m.id END, 1
      FROM (SELECT f.tenant, f.id AS node, 'mach-' || md5(f.tenant || ' ' || n) AS id, n <= ${MACHINES_EACH}::int AS runs
        FROM ${fleet} CROSS JOIN generate_series(1, ${MACHINES_EACH}::int + f.starts) n) m`);
    await transaction.execute(sql`
      INSERT INTO machine_runs (boot_id, machine_id, tenant_id, cpus, memory_mb, started_at, node_id, recorded_at)
      SELECT m.observed_boot_id, m.id, m.tenant_id, m.cpus, m.memory_mb, m.created_at, m.node_id, m.created_at
      FROM machines m JOIN ${fleet} ON f.tenant = m.tenant_id WHERE m.observed_boot_id IS NOT NULL`);
    await transaction.execute(sql`
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, rate_id)
      SELECT m.tenant_id, m.id, CASE WHEN u.meter <> 'disk' THEN m.observed_boot_id END, u.meter, u.quantity, m.created_at,
        (SELECT id FROM rates ORDER BY created_at LIMIT 1)
      FROM machines m JOIN ${fleet} ON f.tenant = m.tenant_id
      CROSS JOIN (VALUES ('disk', 20), ('uptime', 1), ('cpu', 2), ('memory', 2048)) AS u(meter, quantity)
      WHERE u.meter = 'disk' OR m.observed_boot_id IS NOT NULL`);
  });
}
