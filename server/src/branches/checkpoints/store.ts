/**
 * Every statement over the rows of checkpoints.
 *
 * Always:
 * - A checkpoint keeps its point (../store.ts), and what its machine was made with: the machine may be gone.
 * - The ceiling and the name are checked in the transaction that inserts the row, under a lock on the row of
 *   the tenant.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { CheckpointInfo } from "@flotilla/contract/checkpoints";
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { instantOf } from "../../db/instant.ts";
import type { BranchSource, KeptMachine } from "../../machines/create.ts";
import type { MachineOrigin } from "../../machines/record.ts";
import type { MachineNodeStatus } from "../../machines/state.ts";
import { notFound } from "../../missing.ts";

export interface CheckpointRow {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string | null;
  readonly machineId: string;
  /** The name of the machine. */
  readonly machineName: string | null;
  readonly hasMemory: boolean;
  /** null: it is lost. */
  readonly pointId: string | null;
  /** The node that has the point; null as above. */
  readonly nodeId: string | null;
  readonly nodeStatus: MachineNodeStatus | null;
  /** Whether the node has made the point. */
  readonly isMade: boolean;
  readonly sizeBytes: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

/** A checkpoint of which machines may be made. */
export interface AvailableCheckpoint extends CheckpointRow {
  readonly source: BranchSource;
  /** What machines begin as that continue with its memory, where it has some. */
  readonly origin: MachineOrigin;
}

/** The id of a checkpoint of the tenant, or its name. */
export interface CheckpointName {
  readonly tenantId: string;
  readonly id: string;
}

const COLUMNS = sql`
  c.id, c.tenant_id AS "tenantId", c.name, c.machine_id AS "machineId", c.machine ->> 'name' AS "machineName",
  c.has_memory AS "hasMemory", c.point_id AS "pointId", p.node_id AS "nodeId",
  n.status AS "nodeStatus", p.made_at IS NOT NULL AS "isMade",
  coalesce(p.disk_bytes + p.memory_bytes, 0)::bigint AS "sizeBytes", ms(c.created_at) AS "createdAt"`;

const ROWS = sql`checkpoints c LEFT JOIN branch_points p ON p.id = c.point_id LEFT JOIN nodes n ON n.id = p.node_id`;

export interface NewCheckpoint {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string | null;
  readonly machineId: string;
  readonly pointId: string;
  readonly machine: KeptMachine;
  readonly secretEnv: Buffer | null;
  readonly hasMemory: boolean;
}

/** `inserted`: also if it was before, by the same operation. */
export function insertCheckpoint(
  { clock, db }: Pick<Context, "clock" | "db">,
  checkpoint: NewCheckpoint,
  max: number,
): Promise<"inserted" | "nameTaken" | "tooMany"> {
  const { id, tenantId, name, machineId, pointId, machine, secretEnv, hasMemory } = checkpoint;
  return db.transaction(async (transaction) => {
    await transaction.query(sql`SELECT 1 FROM tenants WHERE id = ${tenantId} FOR NO KEY UPDATE`);
    await transaction.execute(sql`
      INSERT INTO checkpoints (id, tenant_id, name, machine_id, point_id, machine, secret_env, has_memory, created_at)
      SELECT ${id}, ${tenantId}, ${name}::text, ${machineId}, ${pointId}, ${JSON.stringify(machine)}::jsonb,
        ${secretEnv}::bytea, ${hasMemory}::boolean, ${instantOf(clock.now())}::timestamptz
      WHERE (SELECT count(*) FROM checkpoints WHERE tenant_id = ${tenantId}) < ${max}
      ON CONFLICT DO NOTHING`);
    const row = await transaction.queryOne<{ readonly id: string }>(sql`
      SELECT c.id FROM checkpoints c WHERE c.tenant_id = ${tenantId} AND (c.id = ${id} OR c.name = ${name}::text)
      ORDER BY c.id = ${id} DESC LIMIT 1`);
    if (row === undefined) return "tooMany";
    return row.id === id ? "inserted" : "nameTaken";
  });
}

export const findCheckpoint = (db: Queryable, { tenantId, id }: CheckpointName): Promise<CheckpointRow | undefined> =>
  db.queryOne<CheckpointRow>(sql`
    SELECT ${COLUMNS} FROM ${ROWS} WHERE c.tenant_id = ${tenantId} AND (c.id = ${id} OR c.name = ${id})
    ORDER BY c.id = ${id} DESC LIMIT 1`);

/** The checkpoint with what machines from it need. Throws a Refusal when none can be made. */
export async function getAvailable(db: Queryable, { tenantId, id }: CheckpointName): Promise<AvailableCheckpoint> {
  type Row = CheckpointRow & { readonly machine: KeptMachine; readonly secretEnv: Buffer | null };
  const row = await db.queryOne<Row>(sql`
    SELECT ${COLUMNS}, c.machine, c.secret_env AS "secretEnv" FROM ${ROWS}
    WHERE c.tenant_id = ${tenantId} AND (c.id = ${id} OR c.name = ${id})
    ORDER BY c.id = ${id} DESC LIMIT 1`);
  if (row === undefined) throw notFound("checkpoint", id);
  const { machine, secretEnv, machineId, pointId, nodeId, hasMemory } = row;
  const { status, error } = statusOf(row);
  if (pointId === null || nodeId === null) throw new Refusal("conflict", `checkpoint ${id} has failed: ${error}`);
  if (status === "creating") throw new Refusal("conflict", `checkpoint ${id} is being made; try again when it is`);
  return {
    ...row,
    source: { ...machine, id: row.id, tenantId, secretEnv },
    origin: { machineId, pointId, nodeId, hasMemory },
  };
}

/** Oldest first. `machineId` null: of all machines. */
export const listCheckpoints = (
  db: Queryable,
  { tenantId, machineId }: { readonly tenantId: string; readonly machineId: string | null },
): Promise<readonly CheckpointRow[]> =>
  db.query<CheckpointRow>(sql`
    SELECT ${COLUMNS} FROM ${ROWS}
    WHERE c.tenant_id = ${tenantId} AND (${machineId}::text IS NULL OR c.machine_id = ${machineId}::text)
    ORDER BY c.created_at, c.id`);

/** Also of one that does not exist. Its point is removed later (../points-loop.ts). */
export async function deleteCheckpoint(db: Queryable, { tenantId, id }: CheckpointName): Promise<void> {
  await db.execute(sql`DELETE FROM checkpoints WHERE id = ${id} AND tenant_id = ${tenantId}`);
}

/** What users see of it. Pure. */
export function statusOf({ pointId, isMade }: CheckpointRow): Pick<CheckpointInfo, "status" | "error"> {
  if (pointId === null) return { status: "failed", error: "its node has left for good, with its files" };
  return { status: isMade ? "available" : "creating", error: null };
}
