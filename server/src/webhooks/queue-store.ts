/**
 * The statements that deliver: leases of webhooks, the queue of their deliveries, and outcomes.
 *
 * Always:
 * - A worker's write names its `turn`. A server whose lease ended, and went to another one, writes nothing
 *   more.
 * - Events are copied from tenant_events and the cursor is moved in one statement, so that none is skipped.
 * - Events of one resource are attempted in the order of `sequence`; a failed one blocks those behind it.
 */
import { eventJson, insertEvents } from "../write-events.ts";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { DeliveryRecord, NewDelivery } from "./view.ts";

/** A webhook that this server delivers for. Instants are epoch milliseconds. */
export interface LeasedWebhook {
  readonly id: string;
  readonly tenantId: string;
  readonly url: string;
  readonly types: readonly string[] | null;
  readonly secret: Buffer;
  readonly previousSecret: Buffer | null;
  readonly previousUntil: number | null;
  readonly cursor: number | null;
  readonly failures: number;
  readonly changes: number;
  readonly turn: number;
}

export type Lease = Pick<LeasedWebhook, "id" | "turn">;

/**
 * The webhooks of active tenants that have something to deliver or to read, and that no other server has.
 * `keyName`: only those whose secret was sealed with the key of this name.
 */
export function claimWebhooks(
  { db, clock }: Context,
  { limit, leaseMs, keyName }: { readonly limit: number; readonly leaseMs: number; readonly keyName: Buffer },
): Promise<readonly LeasedWebhook[]> {
  const now = clock.now();
  return db.query<LeasedWebhook>(sql`
    WITH due AS (
      SELECT w.id FROM webhooks w JOIN tenants t ON t.id = w.tenant_id AND t.status = 'active'
      WHERE w.is_enabled AND w.leased_until <= ${instantOf(now)} AND substring(w.secret FOR length(${keyName}::bytea)) = ${keyName}::bytea
        AND (w.due_at <= ${instantOf(now)} OR w.reads_at <= ${instantOf(now)} AND EXISTS (
          SELECT FROM tenant_events e
          WHERE e.tenant_id = w.tenant_id AND e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
            AND (e.restored_rank, e.transaction_id, e.position) > (
              SELECT coalesce(max(r.restored_rank), 0), coalesce(max(r.transaction_id), '0'::xid8), coalesce(max(r.position), 0)
              FROM tenant_events r WHERE r.position = w.cursor)))
      ORDER BY w.leased_until LIMIT ${limit} FOR NO KEY UPDATE OF w SKIP LOCKED)
    UPDATE webhooks SET turn = turn + 1, leased_until = ${instantOf(now + leaseMs)}::timestamptz
    WHERE id IN (SELECT id FROM due)
    RETURNING id, tenant_id AS "tenantId", url, types, secret, previous_secret AS "previousSecret",
      ms(previous_until) AS "previousUntil", cursor, failures, changes, turn`);
}

/** How many enabled webhooks have a secret that was sealed with another key. */
export async function countSealedOtherwise(db: Queryable, keyName: Buffer): Promise<number> {
  const row = await db.queryOne<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM webhooks
    WHERE is_enabled AND substring(secret FOR length(${keyName}::bytea)) <> ${keyName}::bytea`);
  return row?.count ?? 0;
}

/** false: the lease has ended, or its owner has paused or deleted the webhook. */
export async function renewWebhook(db: Queryable, { id, turn }: Lease, leasedUntil: number): Promise<boolean> {
  const rows = await db.execute(sql`
    UPDATE webhooks SET leased_until = ${instantOf(leasedUntil)} WHERE id = ${id} AND turn = ${turn} AND is_enabled`);
  return rows > 0;
}

export interface EndOfLease {
  /** As the lease began. */
  readonly changes: number;
  readonly now: number;
  /** Nothing is attempted or read before. */
  readonly notBefore: number;
  /** New events are not read before a delivery has ended. */
  readonly isFull: boolean;
  readonly kept: number;
}

/**
 * Ends a lease: computes when the webhook is due again, and deletes the oldest ended deliveries beyond
 * `kept`.
 */
export async function releaseWebhook(db: Queryable, { id, turn }: Lease, end: EndOfLease): Promise<void> {
  const { changes, kept } = end;
  const now = instantOf(end.now);
  const notBefore = instantOf(end.notBefore);
  await db.execute(sql`
    WITH heads AS (
      SELECT DISTINCT ON (resource_id) next_attempt_at FROM webhook_deliveries
      WHERE webhook_id = ${id} AND status = 'pending' ORDER BY resource_id, sequence),
    soonest AS (
      SELECT greatest(coalesce(min(next_attempt_at), 'infinity'), ${notBefore}::timestamptz) AS at FROM heads),
    trimmed AS (
      DELETE FROM webhook_deliveries WHERE webhook_id = ${id} AND status <> 'pending' AND sequence <= (
        SELECT sequence FROM webhook_deliveries WHERE webhook_id = ${id} AND status <> 'pending'
        ORDER BY sequence DESC OFFSET ${kept} LIMIT 1))
    UPDATE webhooks SET leased_until = ${now}::timestamptz,
      due_at = CASE WHEN changes = ${changes}::bigint THEN soonest.at ELSE ${now}::timestamptz END,
      reads_at = CASE WHEN changes = ${changes}::bigint THEN
          CASE WHEN ${end.isFull}::boolean THEN soonest.at ELSE ${notBefore}::timestamptz END
        ELSE ${now}::timestamptz END
    FROM soonest WHERE id = ${id} AND turn = ${turn}`);
}

/** How many deliveries of the webhook wait. */
export async function countPending(db: Queryable, webhookId: string): Promise<number> {
  const row = await db.queryOne<{ count: number }>(sql`
    SELECT count(*) FROM webhook_deliveries WHERE webhook_id = ${webhookId} AND status = 'pending'`);
  return row?.count ?? 0;
}

/**
 * Copies events to the queue and moves the cursor from `from` to `to`. An event that is there already is
 * delivered again, behind all others. false: the lease has ended, or the cursor was moved by a replay.
 */
export async function enqueueEvents(
  db: Queryable,
  { id, turn }: Lease,
  move: {
    readonly from: number | null;
    readonly to: number;
    readonly deliveries: readonly NewDelivery[];
    readonly now: number;
  },
): Promise<boolean> {
  const now = instantOf(move.now);
  const rows = move.deliveries.map((one, place) => ({ ...one, place }));
  const row = await db.queryOne<{ isMoved: boolean }>(sql`
    WITH moved AS (
      UPDATE webhooks SET cursor = ${move.to}::bigint
      WHERE id = ${id} AND turn = ${turn} AND cursor IS NOT DISTINCT FROM ${move.from}::bigint
      RETURNING id),
    queued AS (
      INSERT INTO webhook_deliveries (
        webhook_id, event_id, event_position, resource_id, type, body, status, attempts, queued_at, next_attempt_at)
      SELECT moved.id, e."eventId", e.position, e."resourceId", e.type, e.body, 'pending', 0, ${now}::timestamptz,
        ${now}::timestamptz
      FROM moved, jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
        AS e("eventId" text, position bigint, "resourceId" text, type text, body text, place integer)
      ORDER BY e.place
      ON CONFLICT (webhook_id, event_id) DO UPDATE SET sequence = excluded.sequence, status = 'pending', attempts = 0,
        queued_at = excluded.queued_at, next_attempt_at = excluded.next_attempt_at)
    SELECT EXISTS (SELECT FROM moved) AS "isMoved"`);
  return row?.isMoved === true;
}

export interface DueDelivery {
  readonly eventId: string;
  readonly sequence: number;
  readonly resourceId: string;
  readonly body: string;
  readonly attempts: number;
  /** Epoch milliseconds. */
  readonly queuedAt: number;
}

/** The first deliveries of each resource whose turn has come: at most `perResource` of one, in order. */
export const listDue = (
  db: Queryable,
  query: { readonly webhookId: string; readonly now: number; readonly perResource: number; readonly limit: number },
): Promise<readonly DueDelivery[]> =>
  db.query<DueDelivery>(sql`
    WITH waiting AS (
      SELECT event_id, sequence, resource_id, body, attempts, ms(queued_at) AS "queuedAt",
        first_value(next_attempt_at) OVER (PARTITION BY resource_id ORDER BY sequence) AS head_at,
        row_number() OVER (PARTITION BY resource_id ORDER BY sequence) AS place
      FROM webhook_deliveries WHERE webhook_id = ${query.webhookId} AND status = 'pending')
    SELECT event_id AS "eventId", sequence, resource_id AS "resourceId", body, attempts, "queuedAt" FROM waiting
    WHERE head_at <= ${instantOf(query.now)} AND place <= ${query.perResource} ORDER BY sequence LIMIT ${query.limit}`);

export interface Outcome extends Pick<DueDelivery, "eventId" | "sequence" | "queuedAt"> {
  readonly status: DeliveryRecord["status"];
  /** null unless it is pending. */
  readonly nextAttemptAt: number | null;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
}

export interface Health {
  readonly failures: number;
  readonly failingSince: number | null;
}

/**
 * Writes outcomes in the order of their attempts. A delivery that was queued again since keeps waiting.
 * undefined: the lease has ended, and nothing was written.
 */
export async function recordOutcomes(
  db: Queryable,
  { id, turn }: Lease,
  { outcomes, now }: { readonly outcomes: readonly Outcome[]; readonly now: number },
): Promise<Health | undefined> {
  const rows = outcomes.map(({ nextAttemptAt, queuedAt, ...one }) => ({
    ...one,
    nextAttemptAt: instantOf(nextAttemptAt),
    queuedAt: instantOf(queuedAt),
  }));
  // The failures since the last success; all of them count when there was none.
  const lastSuccess = outcomes.findLastIndex(({ status }) => status === "delivered");
  const failures = outcomes.length - 1 - lastSuccess;
  const isReset = lastSuccess >= 0;
  return await db.queryOne<Health>(sql`
    WITH health AS (
      UPDATE webhooks SET
        failures = CASE WHEN ${isReset}::boolean THEN 0 ELSE failures END + ${failures}::int,
        failing_since = CASE WHEN ${failures === 0}::boolean THEN NULL WHEN ${isReset}::boolean THEN ${instantOf(now)}::timestamptz
          ELSE coalesce(failing_since, ${instantOf(now)}::timestamptz) END
      WHERE id = ${id} AND turn = ${turn}
      RETURNING id, failures, failing_since),
    recorded AS (
      UPDATE webhook_deliveries d SET status = o.status, attempts = d.attempts + 1, next_attempt_at = o."nextAttemptAt",
        last_attempt_at = ${instantOf(now)}::timestamptz, last_status = o."lastStatus", last_error = o."lastError"
      FROM health, jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
        AS o("eventId" text, sequence bigint, "queuedAt" timestamptz, status text, "nextAttemptAt" timestamptz, "lastStatus" int, "lastError" text)
      WHERE d.webhook_id = health.id AND d.event_id = o."eventId" AND d.sequence = o.sequence AND d.status = 'pending'
        AND date_trunc('milliseconds', d.queued_at) = o."queuedAt")
    SELECT failures, ms(failing_since) AS "failingSince" FROM health`);
}

/** Disables a webhook and writes the event that says so. false: the lease has ended. */
export async function disableWebhook(context: Context, { id, turn }: Lease, reason: string): Promise<boolean> {
  const now = instantOf(context.clock.now());
  const event = eventJson({ type: "webhook.disabled", data: { webhookId: id, reason } });
  const rows = await context.db.execute(sql`
    WITH disabled AS (
      UPDATE webhooks SET is_enabled = false, disabled_reason = ${reason}, leased_until = ${now}::timestamptz,
        updated_at = ${now}::timestamptz
      WHERE id = ${id} AND turn = ${turn} AND is_enabled RETURNING id, tenant_id)
    ${insertEvents(sql`
      SELECT tenant_id, id AS subject_id, ${event} AS event, ${now}::timestamptz AS created_at
      FROM disabled`)}`);
  return rows > 0;
}
