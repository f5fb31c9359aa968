/**
 * The statements for webhooks themselves, made by their owners. Leases and deliveries are in queue-store.ts.
 *
 * Always: what makes something due also counts `changes`, so that a worker that ends at the same time does
 * not overwrite it. Instants are epoch milliseconds.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { WebhookRecord } from "./view.ts";

const COLUMNS = sql`
  w.id, w.tenant_id AS "tenantId", w.url, w.description, w.types, w.is_enabled AS "isEnabled",
  w.disabled_reason AS "disabledReason", w.failures, w.cursor,
  ms(w.failing_since) AS "failingSince",
  ms(w.previous_until) AS "previousUntil",
  ms(w.created_at) AS "createdAt",
  ms(w.updated_at) AS "updatedAt",
  (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.status = 'pending') AS pending`;

export interface WebhookName {
  readonly tenantId: string;
  readonly id: string;
}

export interface NewWebhook extends WebhookName {
  readonly url: string;
  readonly description: string | null;
  readonly types: readonly string[] | null;
  readonly secret: Buffer;
  readonly now: number;
}

/** Oldest first. */
export const listWebhooks = (db: Queryable, tenantId: string): Promise<readonly WebhookRecord[]> =>
  db.query<WebhookRecord>(sql`
    SELECT ${COLUMNS} FROM webhooks w WHERE w.tenant_id = ${tenantId} ORDER BY w.created_at, w.id`);

export const findWebhook = (db: Queryable, { tenantId, id }: WebhookName): Promise<WebhookRecord | undefined> =>
  db.queryOne<WebhookRecord>(sql`SELECT ${COLUMNS} FROM webhooks w WHERE w.id = ${id} AND w.tenant_id = ${tenantId}`);

/**
 * Inserts a webhook that receives events from now on, unless its tenant has `max`; false. A known id was
 * inserted by the first run of the same request.
 */
export function insertWebhook(db: Database, webhook: NewWebhook, max: number): Promise<boolean> {
  const { id, tenantId, now } = webhook;
  return db.transaction(async (transaction) => {
    // Webhooks of a tenant are made one at a time, so that the count holds.
    await transaction.query(sql`SELECT 1 FROM tenants WHERE id = ${tenantId} FOR NO KEY UPDATE`);
    const row = await transaction.queryOne<{ isThere: boolean }>(sql`
      WITH inserted AS (
        INSERT INTO webhooks (
          id, tenant_id, url, description, types, secret, is_enabled, cursor, due_at, reads_at, leased_until, created_at,
          updated_at)
        SELECT ${id}, ${tenantId}, ${webhook.url}, ${webhook.description}, ${webhook.types}::text[], ${webhook.secret}, true,
          (SELECT e.position FROM tenant_events e
           WHERE e.tenant_id = ${tenantId} AND e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
           ORDER BY e.restored_rank DESC, e.transaction_id DESC, e.position DESC LIMIT 1),
          'infinity', ${instantOf(now)}::timestamptz, ${instantOf(now)}::timestamptz, ${instantOf(now)}::timestamptz,
          ${instantOf(now)}::timestamptz
        WHERE (SELECT count(*) FROM webhooks WHERE tenant_id = ${tenantId}) < ${max}
        ON CONFLICT (id) DO NOTHING
        RETURNING id)
      SELECT EXISTS (SELECT FROM inserted) OR EXISTS (SELECT FROM webhooks WHERE id = ${id}) AS "isThere"`);
    return row?.isThere === true;
  });
}

/** undefined: keeps its value. */
export interface WebhookChange {
  readonly url: string | undefined;
  readonly description: string | null | undefined;
  readonly types: readonly string[] | null | undefined;
  readonly isEnabled: boolean | undefined;
}

/**
 * Changes a webhook. A new address, or enabling it, ends its failures, and its waiting deliveries are due
 * immediately, each with all of its attempts. The lease of a server that delivers with the old values ends.
 */
export function updateWebhook(
  db: Queryable,
  { tenantId, id }: WebhookName,
  change: WebhookChange,
  now: number,
): Promise<WebhookRecord | undefined> {
  const isFresh = change.isEnabled === true || change.url !== undefined;
  return db.queryOne<WebhookRecord>(sql`
    WITH w AS (
      UPDATE webhooks SET
        url = coalesce(${change.url ?? null}::text, url),
        description = CASE WHEN ${change.description === undefined}::boolean THEN description ELSE ${change.description ?? null}::text END,
        types = CASE WHEN ${change.types === undefined}::boolean THEN types ELSE ${change.types ?? null}::text[] END,
        is_enabled = coalesce(${change.isEnabled ?? null}::boolean, is_enabled),
        disabled_reason = CASE WHEN ${change.isEnabled !== undefined}::boolean THEN NULL ELSE disabled_reason END,
        failures = CASE WHEN ${isFresh}::boolean THEN 0 ELSE failures END,
        failing_since = CASE WHEN ${isFresh}::boolean THEN NULL ELSE failing_since END,
        due_at = CASE WHEN ${isFresh}::boolean THEN ${instantOf(now)}::timestamptz ELSE due_at END,
        reads_at = CASE WHEN ${isFresh}::boolean THEN ${instantOf(now)}::timestamptz ELSE reads_at END,
        changes = changes + 1, turn = turn + 1, leased_until = ${instantOf(now)}::timestamptz,
        updated_at = ${instantOf(now)}::timestamptz
      WHERE id = ${id} AND tenant_id = ${tenantId}
      RETURNING *),
    due AS (
      UPDATE webhook_deliveries d SET attempts = 0, next_attempt_at = ${instantOf(now)}::timestamptz
      FROM w WHERE d.webhook_id = w.id AND d.status = 'pending' AND ${isFresh}::boolean)
    SELECT ${COLUMNS} FROM w`);
}

/** false: there is none. Its deliveries are deleted with it. */
export async function removeWebhook(db: Queryable, { tenantId, id }: WebhookName): Promise<boolean> {
  return (await db.execute(sql`DELETE FROM webhooks WHERE id = ${id} AND tenant_id = ${tenantId}`)) > 0;
}

/** The newest secret, encrypted. undefined: there is no webhook. */
export async function findSealedSecret(db: Queryable, { tenantId, id }: WebhookName): Promise<Buffer | undefined> {
  const row = await db.queryOne<{ secret: Buffer }>(sql`
    SELECT secret FROM webhooks WHERE id = ${id} AND tenant_id = ${tenantId}`);
  return row?.secret;
}

/**
 * The newest secret becomes the previous one until `previousUntil`; null: it ends, and so does the
 * lease of a server that signs with it. false: there is no webhook.
 */
export async function rotateSecret(
  db: Queryable,
  { tenantId, id }: WebhookName,
  {
    secret,
    previousUntil,
    now,
  }: { readonly secret: Buffer; readonly previousUntil: number | null; readonly now: number },
): Promise<boolean> {
  const rows = await db.execute(sql`
    UPDATE webhooks SET secret = ${secret},
      previous_secret = CASE WHEN ${previousUntil === null}::boolean THEN NULL ELSE secret END,
      previous_until = ${instantOf(previousUntil)}::timestamptz, turn = turn + 1,
      leased_until = ${instantOf(now)}::timestamptz, updated_at = ${instantOf(now)}::timestamptz
    WHERE id = ${id} AND tenant_id = ${tenantId}`);
  return rows > 0;
}

/**
 * Moves a webhook back to just after the event at `cursor`; null: before the oldest. Waiting deliveries of
 * later events are removed, because these events are read again. `ahead`: the event was not read yet, so
 * there is nothing to replay.
 */
export function rewind(
  db: Database,
  { tenantId, id }: WebhookName,
  { cursor, now }: { readonly cursor: number | null; readonly now: number },
): Promise<"rewound" | "missing" | "noEvent" | "ahead"> {
  return db.transaction(async (transaction) => {
    const webhook = await transaction.queryOne(sql`
      SELECT id FROM webhooks WHERE id = ${id} AND tenant_id = ${tenantId} FOR NO KEY UPDATE`);
    if (webhook === undefined) return "missing";
    const place = await transaction.queryOne<{ isRead: boolean }>(sql`
      SELECT EXISTS (
        SELECT FROM webhooks w JOIN tenant_events read ON read.position = w.cursor
        WHERE w.id = ${id} AND (read.restored_rank, read.transaction_id, read.position)
          >= (e.restored_rank, e.transaction_id, e.position)) AS "isRead"
      FROM tenant_events e WHERE e.position = ${cursor}::bigint AND e.tenant_id = ${tenantId}`);
    if (cursor !== null && place === undefined) return "noEvent";
    if (place?.isRead === false) return "ahead";
    await transaction.execute(sql`
      UPDATE webhooks SET cursor = ${cursor}, reads_at = ${instantOf(now)}, changes = changes + 1 WHERE id = ${id}`);
    await transaction.execute(sql`
      DELETE FROM webhook_deliveries d USING tenant_events e
      WHERE d.webhook_id = ${id} AND d.status = 'pending' AND e.position = d.event_position
        AND (e.restored_rank, e.transaction_id, e.position) > (
          SELECT coalesce(max(restored_rank), 0), coalesce(max(transaction_id), '0'::xid8), coalesce(max(position), 0)
          FROM tenant_events WHERE position = ${cursor}::bigint)`);
    return "rewound";
  });
}
