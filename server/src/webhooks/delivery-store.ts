/**
 * The statements for deliveries that owners ask for: lists, tests and redeliveries.
 *
 * Always: each write is of a webhook of the tenant, and makes it due in the same statement.
 */
import type { WebhookDelivery } from "@flotilla/contract/webhooks";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { WebhookName } from "./store.ts";
import type { DeliveryRecord, NewDelivery } from "./view.ts";

const COLUMNS = sql`
  d.event_id AS "eventId", d.sequence, d.type, d.body, d.status, d.attempts,
  ms(d.queued_at) AS "queuedAt",
  ms(d.last_attempt_at) AS "lastAttemptAt",
  ms(d.next_attempt_at) AS "nextAttemptAt",
  d.last_status AS "lastStatus", d.last_error AS "lastError"`;

export interface DeliveriesPage {
  readonly webhookId: string;
  readonly status: WebhookDelivery["status"] | null;
  /** Only those before this sequence. */
  readonly before: number | null;
  readonly limit: number;
}

/** Newest first. */
export const listDeliveries = (
  db: Queryable,
  { webhookId, status, before, limit }: DeliveriesPage,
): Promise<readonly DeliveryRecord[]> =>
  db.query<DeliveryRecord>(sql`
    SELECT ${COLUMNS} FROM webhook_deliveries d
    WHERE d.webhook_id = ${webhookId} AND (${status}::text IS NULL OR d.status = ${status}::text)
      AND (${before}::bigint IS NULL OR d.sequence < ${before}::bigint)
    ORDER BY d.sequence DESC LIMIT ${limit}`);

/** Queues a test. undefined: `max` deliveries wait already. A known event was queued by the same request. */
export function insertTest(
  db: Queryable,
  webhookId: string,
  { delivery, max, now }: { readonly delivery: NewDelivery; readonly max: number; readonly now: number },
): Promise<DeliveryRecord | undefined> {
  return db.queryOne<DeliveryRecord>(sql`
    WITH due AS (
      UPDATE webhooks SET due_at = ${instantOf(now)}::timestamptz, changes = changes + 1
      WHERE id = ${webhookId}
        AND (SELECT count(*) FROM webhook_deliveries WHERE webhook_id = ${webhookId} AND status = 'pending') < ${max}
      RETURNING id),
    d AS (
      INSERT INTO webhook_deliveries AS old (
        webhook_id, event_id, resource_id, type, body, status, attempts, queued_at, next_attempt_at)
      SELECT id, ${delivery.eventId}, ${delivery.resourceId}, ${delivery.type}, ${delivery.body}, 'pending', 0,
        ${instantOf(now)}::timestamptz, ${instantOf(now)}::timestamptz FROM due
      ON CONFLICT (webhook_id, event_id) DO UPDATE SET type = old.type
      RETURNING *)
    SELECT ${COLUMNS} FROM d`);
}

/** Queues a delivery again, behind all others. undefined: there is none. */
export function requeue(
  db: Queryable,
  { id, tenantId }: WebhookName,
  { eventId, now }: { readonly eventId: string; readonly now: number },
): Promise<DeliveryRecord | undefined> {
  return db.queryOne<DeliveryRecord>(sql`
    WITH due AS (
      UPDATE webhooks SET due_at = ${instantOf(now)}::timestamptz, changes = changes + 1
      WHERE id = ${id} AND tenant_id = ${tenantId} RETURNING id),
    d AS (
      UPDATE webhook_deliveries old SET
        sequence = CASE WHEN old.status = 'pending' THEN old.sequence ELSE nextval(pg_get_serial_sequence('webhook_deliveries', 'sequence')) END,
        status = 'pending', attempts = 0, queued_at = ${instantOf(now)}::timestamptz, next_attempt_at = ${instantOf(now)}::timestamptz
      FROM due WHERE old.webhook_id = due.id AND old.event_id = ${eventId}
      RETURNING old.*)
    SELECT ${COLUMNS} FROM d`);
}
