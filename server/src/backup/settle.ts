/**
 * Changes a database that was just loaded from a backup, so that a control plane which is older than its
 * nodes does no harm.
 *
 * Always:
 * - No node is asked to remove anything: which copies moves left behind is forgotten, because a machine may
 *   have come back since. Nodes keep what they have.
 * - Nodes count as unreachable until they have reported everything they have (RESTORED_AGENT); requests about
 *   their machines wait for that.
 * - Work that was in progress has failed. Deadlines and idle times count from now.
 * - Join tokens that were left have ended: they may have been used since.
 * - Invoices get numbers of a new series: numbers that were given since the backup may have been sent.
 */
import type pg from "pg";
import { RESTORED_AGENT } from "../nodes/state.ts";
import type { Manifest } from "./manifest.ts";

export interface SettleOptions {
  readonly client: pg.Client;
  readonly manifest: Manifest;
  /** Whether everything that gives access is to end: API keys, connect tokens and share links. */
  readonly revokesKeys: boolean;
}

const NOW = `to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** A series for each restore, also when the same backup is restored again. */
const SERIES = `to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"')`;

export async function settle({ client, manifest, revokesKeys }: SettleOptions): Promise<void> {
  const reason = `the control plane was restored from a backup of ${manifest.createdAt}; request it again`;
  await client.query(
    `UPDATE operations SET status = 'failed', error = $1, leased_until = NULL, updated_at = now(), steps = (
       SELECT coalesce(jsonb_agg(CASE WHEN step ->> 'status' = 'running'
         THEN step || jsonb_build_object('status', 'failed', 'finishedAt', ${NOW}, 'message', $1::text) ELSE step END
         ORDER BY place), '[]')
       FROM jsonb_array_elements(steps) WITH ORDINALITY AS e(step, place))
     WHERE status = 'running'`,
    [reason],
  );
  // Checkpoints that were being made.
  await client.query("DELETE FROM checkpoints c USING branch_points p WHERE p.id = c.point_id AND p.made_at IS NULL");
  await client.query("DELETE FROM machine_copies");
  await client.query(
    `UPDATE machines SET generation = generation + CASE WHEN move_id IS NULL THEN 0 ELSE 1 END, move_id = NULL,
       move_node_id = NULL, desired_at = now(), last_activity_at = greatest(last_activity_at, now()), revision = revision + 1
     WHERE deleted_at IS NULL`,
  );
  await client.query(
    `UPDATE nodes SET agent_boot_id = $1, images_boot_id = NULL, images_sequence = NULL,
       status = CASE WHEN status IN ('ready', 'draining') THEN 'unreachable' ELSE status END`,
    [RESTORED_AGENT],
  );
  await client.query("UPDATE leases SET heartbeat_at = now() WHERE ended_at IS NULL");
  await client.query("UPDATE join_tokens SET expires_at = least(expires_at, now())");
  await client.query(`UPDATE invoice_counter SET last_number = 0, series = ${SERIES}`);
  await client.query("DELETE FROM node_listeners");
  await client.query("DELETE FROM ingress_listeners");
  if (revokesKeys) await revokeAccess(client);
  await recordRestore(client, manifest);
}

export async function revokeAccess(client: pg.Client): Promise<void> {
  await client.query("UPDATE api_keys SET revoked_at = now() WHERE revoked_at IS NULL");
  await client.query("DELETE FROM connect_tokens");
  await client.query("DELETE FROM machine_shares");
  await client.query("DELETE FROM app_shares");
}

/** Records the restore in the chain of the operators' calls. */
async function recordRestore(client: pg.Client, { clusterId, createdAt }: Manifest): Promise<void> {
  const { rows } = await client.query<{ at: string }>(`SELECT ${NOW} AS at`);
  const at = rows[0]?.at ?? createdAt;
  const record = {
    at,
    requestId: `backup-of-${createdAt}`,
    type: "operator.restore",
    resource: clusterId,
    keyId: "operator",
    scopes: [],
    address: "local",
    status: 200,
    errorCode: null,
  };
  const { keyId, type } = record;
  const row = { tenantId: null, at, keyId, type, resource: clusterId, record: JSON.stringify(record) };
  await client.query("SELECT append_audit($1::jsonb)", [JSON.stringify([row])]);
}

/** What was valid when the backup was made, and may have been ended since. */
export interface RestoredAccess {
  readonly keys: number;
  readonly shares: number;
  readonly nodes: number;
  readonly machines: number;
}

export async function countAccess(client: pg.Client): Promise<RestoredAccess> {
  const { rows } = await client.query<RestoredAccess>(`
    SELECT (SELECT count(*)::int FROM api_keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())) AS keys,
      (SELECT (SELECT count(*) FROM machine_shares) + (SELECT count(*) FROM app_shares))::int AS shares,
      (SELECT count(*)::int FROM nodes WHERE status <> 'revoked') AS nodes,
      (SELECT count(*)::int FROM machines WHERE deleted_at IS NULL) AS machines`);
  return rows[0] ?? { keys: 0, shares: 0, nodes: 0, machines: 0 };
}
