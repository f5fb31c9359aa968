/**
 * What the invariants read of the database, at one moment.
 */
import type { MachineFacts } from "../../server/src/machines/state.ts";
import type { Databases } from "./database.ts";

export interface MachineRow extends MachineFacts {
  readonly id: string;
  readonly tenantId: string;
  readonly moveNodeId: string | null;
  readonly isDeleted: boolean;
  readonly isActive: boolean;
  readonly cpus: number;
  readonly revision: number;
  readonly hasRun: boolean;
  readonly createdAt: number;
  /** The last move that changed its node. */
  readonly movedBy: string | null;
  readonly isSuspended: boolean;
  /** It waits in a pool, or is made for one. */
  readonly isInPool: boolean;
  /** The app that it is an instance of; null: none. */
  readonly appId: string | null;
  /** Whether its VM ends when no server answers its node. */
  readonly fence: "on" | "lifting" | null;
}

export interface RunRow {
  readonly bootId: string;
  readonly machineId: string;
  readonly tenantId: string;
  readonly nodeId: string;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly cause: string | null;
  /** Counted uptime, in milliseconds; null: still counted. */
  readonly counted: number | null;
  readonly countedUntil: number | null;
}

export interface AppRow {
  readonly id: string;
  readonly name: string;
  readonly tenantId: string;
  readonly count: number;
  readonly currentRelease: number | null;
  readonly isDestroyed: boolean;
  readonly waitingFor: string | null;
  /** Why the last instance that failed did so; null: none has since as many as asked served. */
  readonly failure: string | null;
  /** The rollout that has not ended; null: there is none. */
  readonly rollout: { readonly phase: string | null; readonly isPromoted: boolean } | null;
  readonly instances: readonly {
    readonly machineId: string;
    readonly release: number;
    readonly isRetired: boolean;
    readonly isRemoved: boolean;
    readonly isRouted: boolean;
  }[];
}

export interface Rows {
  readonly machines: readonly MachineRow[];
  readonly operations: readonly {
    readonly id: string;
    readonly kind: string;
    readonly status: string;
    readonly error: string | null;
    readonly resourceId: string;
    readonly attempt: number;
    /** Epoch milliseconds. */
    readonly canceledAt: number | null;
    /**
     * The last step that began after the cancellation, and succeeded, with how much later it was by the
     * clocks of the servers.
     */
    readonly stepSince: { readonly name: string; readonly ms: number } | null;
    /** The step that runs. */
    readonly step: string | null;
    /** The machines that a branch makes. */
    readonly clones: readonly string[];
  }[];
  readonly nodes: readonly {
    readonly id: string;
    readonly status: string;
    /** Epoch milliseconds. */
    readonly cordonedAt: number | null;
    readonly isInMaintenance: boolean;
    readonly isLost: boolean;
    readonly isHeld: boolean;
  }[];
  readonly copies: readonly { readonly machineId: string; readonly nodeId: string }[];
  readonly pools: readonly {
    readonly id: string;
    readonly targetSize: number;
    /** Machines that wait or are made. */
    readonly members: number;
    /** Machines that could be claimed. */
    readonly idle: number;
    readonly isDeleted: boolean;
    readonly error: string | null;
  }[];
  readonly apps: readonly AppRow[];
  /** The instants of machines that nodes keep for branches. */
  readonly points: readonly string[];
  readonly activeMax: number;
  /** The machines for which something is held of the tenant's budget. */
  readonly held: readonly string[];
}

const ROWS = `SELECT json_build_object(
  'machines', (SELECT coalesce(json_agg(m ORDER BY m.id), '[]') FROM (
    SELECT id, tenant_id AS "tenantId", desired_state AS "desiredState", generation, node_id AS "nodeId", move_id AS "moveId", move_node_id AS "moveNodeId",
      move_stops AS "moveStops", error, observed_state AS "observedState", observed_generation AS "observedGeneration",
      observed_boot_id AS "observedBootId", observed_reason AS "observedReason", deleted_at IS NOT NULL AS "isDeleted",
      is_active AS "isActive", cpus, revision, has_run AS "hasRun", extract(epoch FROM created_at) * 1000 AS "createdAt",
      moved_by AS "movedBy", coalesce(observed_details ->> 'suspendedAt', '') <> '' AS "isSuspended",
      EXISTS (SELECT FROM machine_owners w WHERE w.machine_id = machines.id AND w.kind = 'pool') AS "isInPool",
      (SELECT w.id FROM machine_owners w WHERE w.machine_id = machines.id AND w.kind = 'app') AS "appId", fence
    FROM machines) m),
  'operations', (SELECT coalesce(json_agg(o ORDER BY o.id), '[]') FROM (
    SELECT id, kind, status, error, resource_id AS "resourceId", attempt, extract(epoch FROM cancel_requested_at) * 1000 AS "canceledAt",
      (SELECT json_build_object('name', name, 'ms', ms) FROM (SELECT s ->> 'name' AS name,
           extract(epoch FROM (s ->> 'startedAt')::timestamptz - cancel_requested_at) * 1000 AS ms
         FROM jsonb_array_elements(steps) s WHERE s ->> 'status' = 'succeeded') s WHERE ms > 0 ORDER BY ms DESC LIMIT 1) AS "stepSince",
      (SELECT s ->> 'name' FROM jsonb_array_elements(steps) s WHERE s ->> 'status' = 'running' LIMIT 1) AS step,
      (SELECT coalesce(json_agg(c ->> 'id'), '[]') FROM jsonb_array_elements(CASE kind WHEN 'machine branch' THEN input -> 'clones' ELSE '[]' END) c) AS clones
    FROM operations) o),
  'nodes', (SELECT coalesce(json_agg(n ORDER BY n.id), '[]') FROM (
    SELECT id, status, extract(epoch FROM cordoned_at) * 1000 AS "cordonedAt", maintenance_at IS NOT NULL AS "isInMaintenance",
      lost_at IS NOT NULL AS "isLost", held_at IS NOT NULL AS "isHeld" FROM nodes) n),
  'copies', (SELECT coalesce(json_agg(c), '[]') FROM (
    SELECT machine_id AS "machineId", node_id AS "nodeId" FROM machine_copies ORDER BY 1, 2) c),
  'pools', (SELECT coalesce(json_agg(p ORDER BY p.id), '[]') FROM (
    SELECT p.id, target_size AS "targetSize", deleted_at IS NOT NULL AS "isDeleted", error,
      (SELECT count(*) FROM machine_owners w WHERE w.id = p.id AND w.discarded_at IS NULL) AS members,
      (SELECT count(*) FROM machine_owners w JOIN machines m ON m.id = w.machine_id WHERE w.id = p.id
         AND w.discarded_at IS NULL AND m.observed_state = 'running' AND m.ready_at IS NOT NULL AND m.deleted_at IS NULL) AS idle
    FROM pools p) p),
  'apps', (SELECT coalesce(json_agg(a ORDER BY a.id), '[]') FROM (
    SELECT id, name, tenant_id AS "tenantId", count, current_release AS "currentRelease", deleted_at IS NOT NULL AS "isDestroyed",
      waiting_for AS "waitingFor", failure,
      (SELECT json_build_object('phase', r.progress ->> 'phase', 'isPromoted', r.is_promoted)
         FROM app_rollouts r WHERE r.app_id = apps.id AND r.ended_at IS NULL) AS rollout,
      (SELECT coalesce(json_agg(json_build_object('machineId', i.machine_id, 'release', i.release, 'isRetired', i.retired_at IS NOT NULL,
           'isRemoved', i.removed_at IS NOT NULL, 'isRouted', i.is_routed) ORDER BY i.machine_id), '[]')
         FROM app_instances i WHERE i.app_id = apps.id) AS instances
    FROM apps) a),
  'points', (SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM branch_points),
  'held', (SELECT coalesce(json_agg(machine_id ORDER BY machine_id), '[]') FROM ledger_holds WHERE ended_at IS NULL),
  'activeMax', (SELECT max_concurrent_machines FROM plans WHERE is_default)) AS rows`;

export async function readRows(databases: Databases): Promise<Rows> {
  const [row] = await databases.look<{ rows: Rows }>(ROWS);
  if (row === undefined) throw new Error("no rows");
  return row.rows;
}

const RUNS = `SELECT r.boot_id AS "bootId", r.machine_id AS "machineId", r.tenant_id AS "tenantId", r.node_id AS "nodeId",
  ms(r.started_at) AS "startedAt", ms(r.ended_at) AS "endedAt",
  r.end_cause AS cause, ms(r.counted_until) AS "countedUntil",
  (SELECT CASE WHEN count(*) = count(u.ended_at)
     THEN coalesce(sum(round(extract(epoch FROM u.ended_at - u.started_at) * 1000)), 0) END
   FROM usage_intervals u WHERE u.boot_id = r.boot_id AND u.meter = 'uptime')::float8 AS counted
  FROM machine_runs r ORDER BY r.boot_id`;

export const readRuns = (databases: Databases): Promise<readonly RunRow[]> => databases.look<RunRow>(RUNS);
