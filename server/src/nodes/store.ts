/**
 * Every SQL statement for the rows of nodes.
 *
 * Always:
 * - Credentials are stored as hashes only.
 * - The statement that registers a node with a join token also counts the token's use.
 * - Transitions of the status are read from the table of state.ts.
 */
import type { NodePressure, NodeResources } from "@flotilla/contract/link/link";
import type { NodeStatus } from "@flotilla/contract/nodes";
import { type Queryable, type Statement, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { isNotRevokedSince } from "./revocation-store.ts";
import { movesOf, type NodeEvent, RESTORED_AGENT } from "./state.ts";

export interface NodeRecord {
  readonly id: string;
  readonly address: string;
  readonly status: NodeStatus;
  readonly labels: Readonly<Record<string, string>>;
  readonly runtime: string | null;
  readonly totalCpus: number;
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  readonly usedMemoryMb: number;
  readonly totalDiskGb: number;
  readonly availableDiskGb: number;
  readonly usedDiskGb: number;
  readonly usedCpus: number;
  readonly pressure: NodePressure | null;
  readonly registeredAt: number;
  readonly lastHeartbeatAt: number | null;
  readonly cordonedAt: number | null;
  /** Since when an operator works on it; it is cordoned then. */
  readonly maintenanceAt: number | null;
  /** When it was decided that its fenced machines are replaced; null: it was not. */
  readonly lostAt: number | null;
  /** Since when it is unreachable and they are not replaced, and why; null: that is not so. */
  readonly heldAt: number | null;
  readonly heldReason: string | null;
  readonly linkVersion: number | null;
  /** The version of its agent. */
  readonly release: string | null;
  readonly lastError: { readonly at: number; readonly message: string } | null;
  /** As its last report shows it: a late one looks like a clock that is behind. */
  readonly clockAheadMs: number | null;
  readonly certificateExpiresAt: number | null;
  /** Machines that it has and does not own. */
  readonly unknownMachines: readonly string[];
  /** Machines in VMMs of another program than the installed one; null: it has not said. */
  readonly outdatedVmms: readonly string[] | null;
}

const COLUMNS = sql`
  n.id, n.address, n.status, n.labels, n.runtime, n.total_cpus AS "totalCpus", n.total_memory_mb AS "totalMemoryMb",
  n.available_memory_mb AS "availableMemoryMb", n.used_memory_mb AS "usedMemoryMb", n.total_disk_gb AS "totalDiskGb",
  n.available_disk_gb AS "availableDiskGb", n.used_disk_gb AS "usedDiskGb", n.used_cpus AS "usedCpus", n.pressure,
  ms(n.registered_at) AS "registeredAt",
  ms(n.last_heartbeat_at) AS "lastHeartbeatAt",
  ms(n.cordoned_at) AS "cordonedAt",
  ms(n.maintenance_at) AS "maintenanceAt",
  ms(n.lost_at) AS "lostAt", ms(n.held_at) AS "heldAt",
  n.held_reason AS "heldReason", n.link_version AS "linkVersion", n.release,
  CASE WHEN n.last_error_at IS NOT NULL THEN jsonb_build_object(
    'at', ms(n.last_error_at), 'message', n.last_error) END AS "lastError",
  coalesce(n.clock_measured_ms, n.clock_ahead_ms) AS "clockAheadMs",
  ms(n.certificate_expires_at) AS "certificateExpiresAt",
  n.unknown_machines AS "unknownMachines", n.outdated_vmms AS "outdatedVmms"`;

/** Whether an event applies to the status of a row `n`. */
const permits = (event: NodeEvent): Statement => sql`n.status = ANY(${movesOf(event).from}::text[])`;

/**
 * The status of a row `n` after the event. Computed from the row itself, so that concurrent writes are
 * respected.
 */
function after(event: NodeEvent): Statement {
  const { from, to } = movesOf(event);
  return sql`(${to}::text[])[array_position(${from}::text[], n.status)]`;
}

export const listNodes = (db: Queryable): Promise<readonly NodeRecord[]> =>
  db.query<NodeRecord>(sql`SELECT ${COLUMNS} FROM nodes n ORDER BY n.id`);

export const findNode = (db: Queryable, id: string): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(sql`SELECT ${COLUMNS} FROM nodes n WHERE n.id = ${id}`);

/** What runs on a node. */
export interface AgentRecord {
  /** Its incarnation; null: it has not reported yet. */
  readonly bootId: string | null;
  readonly release: string | null;
  /** Time of its last report, in epoch milliseconds. */
  readonly reportedAt: number | null;
}

export const findAgent = (db: Queryable, nodeId: string): Promise<AgentRecord | undefined> =>
  db.queryOne<AgentRecord>(sql`
    SELECT n.agent_boot_id AS "bootId", n.release, ms(n.last_heartbeat_at) AS "reportedAt"
    FROM nodes n WHERE n.id = ${nodeId}`);

/**
 * A node that has a credential. `keyHash`: of the public key with which it joined; null: it joined without
 * one.
 */
export interface CredentialHolder {
  readonly id: string;
  readonly keyHash: Buffer | null;
}

/** The nodes that have these credentials, by the hashes in hexadecimal. */
export async function findNodesByCredential(
  db: Queryable,
  hashes: readonly string[],
): Promise<ReadonlyMap<string, CredentialHolder>> {
  const rows = await db.query<CredentialHolder & { readonly hash: string }>(sql`
    SELECT encode(n.credential_hash, 'hex') AS hash, n.id, n.key_hash AS "keyHash"
    FROM nodes n WHERE n.credential_hash IN (SELECT decode(h, 'hex') FROM unnest(${hashes}::text[]) h)`);
  return new Map(rows.map(({ hash, id, keyHash }) => [hash, { id, keyHash }]));
}

export interface Registration {
  readonly id: string;
  readonly address: string;
  readonly totalCpus: number;
  readonly totalMemoryMb: number;
  readonly totalDiskGb: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly runtime: string | null;
  /** SHA-256 of the node's public key; null: it has none, as a node of the server's host. */
  readonly keyHash: Buffer | null;
  readonly now: number;
}

/**
 * Registers a known node again, with its credential and the key with which it joined; a drained one becomes
 * ready. undefined: there is none.
 */
export function updateRegistration(db: Queryable, node: Registration): Promise<NodeRecord | undefined> {
  return db.queryOne<NodeRecord>(sql`
    UPDATE nodes n SET
      address = ${node.address}, labels = n.labels || ${JSON.stringify(node.labels)}::jsonb, runtime = ${node.runtime},
      total_cpus = ${node.totalCpus}, total_memory_mb = ${node.totalMemoryMb}, total_disk_gb = ${node.totalDiskGb},
      status = ${after("registered")}
    WHERE n.id = ${node.id} AND ${permits("registered")} AND n.key_hash IS NOT DISTINCT FROM ${node.keyHash}::bytea
    RETURNING ${COLUMNS}`);
}

export interface Admission {
  readonly credentialHash: Buffer;
  /**
   * The token's prefix; null for the server's own token, which may also register a known node of its host
   * again.
   */
  readonly joinTokenPrefix: string | null;
  /** When the token was made, in epoch milliseconds. */
  readonly tokenMadeAt: number;
}

/**
 * Registers a node with a join token, and gives it a credential. A repeated registration with the same key
 * and the same token uses the token once. undefined: the token is used up or expired, or the node exists, was
 * not revoked and may not be replaced, or it was revoked after the token was made; then the token may have
 * been counted, so roll back.
 */
export function admitNode(
  db: Queryable,
  node: Registration,
  { credentialHash, joinTokenPrefix, tokenMadeAt }: Admission,
): Promise<NodeRecord | undefined> {
  return db.queryOne<NodeRecord>(sql`
    WITH repeated AS (
      SELECT 1 FROM nodes WHERE id = ${node.id} AND status <> 'revoked' AND key_hash = ${node.keyHash}::bytea
        AND joined_with = ${joinTokenPrefix}),
    allowed AS (
      SELECT 1 WHERE NOT EXISTS (
        SELECT 1 FROM nodes WHERE id = ${node.id} AND status <> 'revoked'
          AND (${joinTokenPrefix}::text IS NOT NULL OR key_hash IS NOT NULL))
        AND ${isNotRevokedSince({ ...node, tokenMadeAt })}),
    used AS (
      UPDATE join_tokens SET uses = uses + 1
      WHERE prefix = ${joinTokenPrefix} AND uses < max_uses AND expires_at > ${instantOf(node.now)}
        AND EXISTS (SELECT 1 FROM allowed)
      RETURNING labels),
    given AS (
      SELECT labels FROM used UNION ALL SELECT '{}'::jsonb FROM allowed WHERE ${joinTokenPrefix}::text IS NULL
      UNION ALL SELECT t.labels FROM join_tokens t, repeated
        WHERE t.prefix = ${joinTokenPrefix} AND t.expires_at > ${instantOf(node.now)})
    INSERT INTO nodes AS n (
      id, address, status, credential_hash, labels, runtime, total_cpus, total_memory_mb, available_memory_mb,
      total_disk_gb, available_disk_gb, registered_at, key_hash, joined_with)
    SELECT ${node.id}, ${node.address}, 'ready', ${credentialHash}::bytea,
      ${JSON.stringify(node.labels)}::jsonb || given.labels, ${node.runtime}, ${node.totalCpus}::int,
      ${node.totalMemoryMb}::int, ${node.totalMemoryMb}::int, ${node.totalDiskGb}::int, ${node.totalDiskGb}::int,
      ${instantOf(node.now)}::timestamptz, ${node.keyHash}::bytea, ${joinTokenPrefix}::text
    FROM given
    ON CONFLICT (id) DO UPDATE SET
      address = excluded.address, status = 'ready', credential_hash = excluded.credential_hash,
      labels = n.labels || excluded.labels, runtime = excluded.runtime, total_cpus = excluded.total_cpus,
      total_memory_mb = excluded.total_memory_mb, total_disk_gb = excluded.total_disk_gb,
      registered_at = excluded.registered_at,
      key_hash = excluded.key_hash, joined_with = excluded.joined_with
    WHERE ((n.status = 'revoked' OR (${joinTokenPrefix}::text IS NULL AND n.key_hash IS NULL)) AND EXISTS (SELECT 1 FROM allowed))
      OR (n.status <> 'revoked' AND n.key_hash = excluded.key_hash AND n.joined_with = excluded.joined_with)
    RETURNING ${COLUMNS}`);
}

/**
 * How far a heartbeat may put back what is known of a node's clock, in milliseconds. One that comes late,
 * because its server was stopped, looks as if that clock had been put back; the next one must still be seen
 * to be late.
 */
const CLOCK_BACK_MS_MAX = 2_000;
/** A heartbeat that seems to be older was written by a clock that was put back. */
const LATE_MS_MAX = 10 * 60_000;

/** What a node's row had before a heartbeat. */
export type BeforeHeartbeat = Pick<NodeRecord, "status" | "lastHeartbeatAt" | "unknownMachines"> & {
  /** It follows a clock that was put back by CLOCK_BACK_MS_MAX with each heartbeat. null: unknown. */
  readonly clockAheadMs: number | null;
  /** It had not reported since the database was restored. */
  readonly isRestored: boolean;
};

/** What an agent says of itself; null fields: it says nothing of that, or logged no error. */
export interface AgentFacts {
  readonly linkVersion: number;
  readonly release: string | null;
  /** `at`: epoch milliseconds by the node's clock. */
  readonly lastError: { readonly at: number; readonly message: string } | null;
  readonly canFence: boolean;
  readonly outdatedVmms: readonly string[] | null;
}

/** A heartbeat. null: it says nothing of that. */
export interface HeartbeatFacts {
  readonly id: string;
  readonly agentBootId: string | null;
  /** Whether the report has everything that the node has. */
  readonly isComplete: boolean;
  readonly resources: NodeResources | null;
  readonly agent: AgentFacts | null;
  readonly clockAheadMs: number | null;
  readonly certificateExpiresAt: number | null;
  readonly now: number;
}

/**
 * Records heartbeats of different nodes, without waiting for the disk: a crash of PostgreSQL loses at most
 * the last second of heartbeats, and each node sends the next one within seconds. What a report says of
 * machines and runs is written separately, and waits. Returns by their ids what nodes had before; without
 * those that do not exist, were revoked, or have not reported everything they have since the database was
 * restored.
 *
 * It locks the nodes in the order of their ids, as starts do. `lockWaitMs`: as for changes of machines.
 */
export async function updateHeartbeats(
  db: Queryable,
  heartbeats: readonly HeartbeatFacts[],
  { lockWaitMs = 0 }: { readonly lockWaitMs?: number } = {},
): Promise<ReadonlyMap<string, BeforeHeartbeat>> {
  const rows = await db.query<BeforeHeartbeat & { readonly id: string }>(sql`
    WITH settings AS (
      SELECT set_config('synchronous_commit', 'off', true),
        CASE WHEN ${lockWaitMs}::int > 0 THEN set_config('lock_timeout', ${String(lockWaitMs)}, true) END),
    reported AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(heartbeats.map(heartbeatWire))}::jsonb) AS h(
        id text, is_complete boolean, at timestamptz, agent_boot_id text, clock_ahead_ms bigint, certificate_expires_at timestamptz,
        has_agent boolean, can_fence boolean, link_version int, release text, last_error text, last_error_at timestamptz,
        outdated_vmms text[], has_resources boolean, total_cpus int, total_memory_mb int, available_memory_mb int, used_memory_mb int,
        total_disk_gb int, available_disk_gb int, used_disk_gb int, used_cpus float8, pressure jsonb)),
    before AS (
      SELECT h.*, n.status, n.last_heartbeat_at, n.last_late_ms, n.unknown_machines, n.agent_boot_id AS known_boot_id, n.clock_ahead_ms AS was_ahead_ms
      FROM nodes n JOIN reported h ON h.id = n.id
      WHERE n.id = ANY(${heartbeats.map(({ id }) => id)}::text[]) AND ${permits("heartbeat")} AND (h.is_complete OR n.agent_boot_id IS DISTINCT FROM ${RESTORED_AGENT})
        AND (SELECT count(*) FROM settings) = 1
      ORDER BY n.id FOR NO KEY UPDATE OF n)
    UPDATE nodes n SET
      status = ${after("heartbeat")}, last_heartbeat_at = h.at, lost_at = NULL, held_at = NULL, held_reason = NULL,
      can_fence = coalesce(h.can_fence, n.can_fence), agent_boot_id = coalesce(h.agent_boot_id, n.agent_boot_id),
      link_version = coalesce(h.link_version, n.link_version), release = CASE WHEN h.has_agent THEN h.release ELSE n.release END,
      last_error = CASE WHEN h.has_agent THEN h.last_error ELSE n.last_error END,
      last_error_at = CASE WHEN h.has_agent THEN h.last_error_at ELSE n.last_error_at END,
      outdated_vmms = CASE WHEN h.has_agent THEN h.outdated_vmms ELSE n.outdated_vmms END,
      clock_ahead_ms = CASE WHEN h.clock_ahead_ms IS NOT NULL
        THEN greatest(h.clock_ahead_ms, h.was_ahead_ms - ${CLOCK_BACK_MS_MAX}::bigint) END,
      last_late_ms = least(${LATE_MS_MAX}::bigint, greatest(0, h.was_ahead_ms - h.clock_ahead_ms),
        greatest(0, ceil(extract(epoch FROM h.at - h.last_heartbeat_at) * 1000)::bigint + h.last_late_ms)),
      clock_measured_ms = h.clock_ahead_ms, certificate_expires_at = h.certificate_expires_at,
      total_cpus = coalesce(h.total_cpus, n.total_cpus), total_memory_mb = coalesce(h.total_memory_mb, n.total_memory_mb),
      available_memory_mb = coalesce(h.available_memory_mb, n.available_memory_mb), used_memory_mb = coalesce(h.used_memory_mb, n.used_memory_mb),
      total_disk_gb = coalesce(h.total_disk_gb, n.total_disk_gb), available_disk_gb = coalesce(h.available_disk_gb, n.available_disk_gb),
      used_disk_gb = coalesce(h.used_disk_gb, n.used_disk_gb), used_cpus = coalesce(h.used_cpus, n.used_cpus),
      pressure = CASE WHEN h.has_resources THEN h.pressure ELSE n.pressure END
    FROM before h WHERE n.id = h.id
    RETURNING n.id, h.status, h.unknown_machines AS "unknownMachines", h.was_ahead_ms AS "clockAheadMs",
      h.known_boot_id IS NOT DISTINCT FROM ${RESTORED_AGENT} AS "isRestored",
      ms(h.last_heartbeat_at) AS "lastHeartbeatAt"`);
  return new Map(rows.map(({ id, ...before }) => [id, before]));
}

/** A heartbeat in the format of the statement. */
const heartbeatWire = (heartbeat: HeartbeatFacts): object => {
  const { agent, resources } = heartbeat;
  return {
    ...{ id: heartbeat.id, is_complete: heartbeat.isComplete, at: instantOf(heartbeat.now) },
    ...{ agent_boot_id: heartbeat.agentBootId, clock_ahead_ms: heartbeat.clockAheadMs },
    certificate_expires_at: instantOf(heartbeat.certificateExpiresAt),
    has_agent: agent !== null,
    ...(agent !== null && {
      ...{ can_fence: agent.canFence, link_version: agent.linkVersion, release: agent.release },
      ...{ last_error: agent.lastError?.message, last_error_at: instantOf(agent.lastError?.at) },
      outdated_vmms: agent.outdatedVmms,
    }),
    has_resources: resources !== null,
    ...(resources !== null && {
      ...{ total_cpus: resources.totalCpus, used_cpus: resources.usedCpus, total_memory_mb: resources.totalMemoryMb },
      ...{ available_memory_mb: resources.availableMemoryMb, used_memory_mb: resources.usedMemoryMb },
      ...{ total_disk_gb: resources.totalDiskGb, available_disk_gb: resources.availableDiskGb },
      ...{ used_disk_gb: resources.usedDiskGb, pressure: resources.pressure },
    }),
  };
};

/** The pressure of each node that reports and whose kernel measures it. */
export const listPressure = (
  db: Queryable,
): Promise<readonly { readonly id: string; readonly pressure: NodePressure }[]> =>
  db.query(sql`
    SELECT n.id, n.pressure FROM nodes n WHERE n.status IN ('ready', 'draining', 'drained') AND n.pressure IS NOT NULL ORDER BY n.id`);

/** Replaces the machines that a node has and does not own. */
export async function writeUnknownMachines(db: Queryable, id: string, machineIds: readonly string[]): Promise<void> {
  await db.execute(sql`UPDATE nodes SET unknown_machines = ${machineIds}::text[] WHERE id = ${id}`);
}

/** Cordons a node from now on, unless it is cordoned already. undefined: there is no such node. */
export const cordonNode = (db: Queryable, id: string, now: number): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(sql`
    UPDATE nodes n SET cordoned_at = coalesce(n.cordoned_at, ${instantOf(now)}) WHERE n.id = ${id} RETURNING ${COLUMNS}`);

/** Cordons a node, and expects it to be away, unless that is so already. undefined: there is no such node. */
export const maintainNode = (db: Queryable, id: string, now: number): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(sql`
    UPDATE nodes n SET cordoned_at = coalesce(n.cordoned_at, ${instantOf(now)}), maintenance_at = coalesce(n.maintenance_at, ${instantOf(now)}), held_at = NULL, held_reason = NULL
    WHERE n.id = ${id} RETURNING ${COLUMNS}`);

/** Ends a maintenance as well. undefined: there is no such node. */
export const uncordonNode = (db: Queryable, id: string): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(
    sql`UPDATE nodes n SET cordoned_at = NULL, maintenance_at = NULL WHERE n.id = ${id} RETURNING ${COLUMNS}`,
  );

/** Closes a node to starts for the time of its drain. undefined: there is no reporting node with this id. */
export const beginDrain = (db: Queryable, id: string): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(sql`
    UPDATE nodes n SET status = ${after("drainRequested")}
    WHERE n.id = ${id} AND ${permits("drainRequested")} RETURNING ${COLUMNS}`);

/** Opens a drained or draining node again. undefined: there is no reporting node with this id. */
export const reopenNode = (db: Queryable, id: string): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(sql`
    UPDATE nodes n SET status = ${after("drainCanceled")}
    WHERE n.id = ${id} AND ${permits("drainCanceled")} RETURNING ${COLUMNS}`);

/** Whether the node was draining, or its drain had already ended this way. */
export async function endDrain(db: Queryable, id: string, end: "drained" | "drainFailed"): Promise<boolean> {
  const rows = await db.execute(sql`
    UPDATE nodes n SET status = ${after(end)} WHERE n.id = ${id} AND ${permits(end)}`);
  return rows > 0;
}

/** A node whose row no other transaction changes until this one ends; undefined: there is none. */
export const lockNode = (db: Queryable, id: string): Promise<NodeRecord | undefined> =>
  db.queryOne<NodeRecord>(sql`SELECT ${COLUMNS} FROM nodes n WHERE n.id = ${id} FOR UPDATE`);

/** Lets no other transaction begin an upgrade of nodes until this one ends. */
export async function lockUpgrades(db: Queryable): Promise<void> {
  await db.execute(sql`SELECT pg_advisory_xact_lock(hashtext('node upgrade'))`);
}

/** Removes the row of a node that no machine refers to, with the images that it has reported. */
export async function deleteNode(db: Queryable, id: string): Promise<void> {
  await db.execute(sql`DELETE FROM nodes WHERE id = ${id}`);
}

/** Marks nodes that were silent for too long, and returns them. */
export const markUnreachable = (
  db: Queryable,
  silentSince: number,
): Promise<readonly { readonly id: string; readonly isInMaintenance: boolean }[]> =>
  db.query(sql`
    UPDATE nodes n SET status = ${after("silent")}
    WHERE ${permits("silent")} AND greatest(n.last_heartbeat_at, n.registered_at) < ${instantOf(silentSince)}
    RETURNING id, maintenance_at IS NOT NULL AS "isInMaintenance"`);

/** Whether a ready node has reported since then. */
export async function hasReported(db: Queryable, since: number): Promise<boolean> {
  const row = await db.queryOne(sql`
    SELECT id FROM nodes WHERE status = 'ready' AND last_heartbeat_at >= ${instantOf(since)} LIMIT 1`);
  return row !== undefined;
}

export async function countNodes(db: Queryable): Promise<{ readonly nodesTotal: number; readonly nodesReady: number }> {
  const row = await db.queryOne<{ total: number; ready: number }>(sql`
    SELECT count(*) FILTER (WHERE status <> 'revoked')::int AS total,
      count(*) FILTER (WHERE status = 'ready')::int AS ready FROM nodes`);
  return { nodesTotal: row?.total ?? 0, nodesReady: row?.ready ?? 0 };
}
