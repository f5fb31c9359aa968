/**
 * Webhooks and deliveries as callers see them, and events as receivers do. Pure.
 */
import { matchesType } from "@flotilla/contract/event-types";
import type { WebhookDelivery, WebhookInfo } from "@flotilla/contract/webhooks";
import { type TenantEventRecord, tenantEvent } from "../events/view.ts";

/** Instants are epoch milliseconds. */
export interface WebhookRecord {
  readonly id: string;
  readonly tenantId: string;
  readonly url: string;
  readonly description: string | null;
  readonly types: readonly string[] | null;
  readonly isEnabled: boolean;
  readonly disabledReason: string | null;
  readonly failures: number;
  readonly failingSince: number | null;
  readonly pending: number;
  /** The position of the last event that was read for it. */
  readonly cursor: number | null;
  readonly previousUntil: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface DeliveryRecord {
  readonly eventId: string;
  /** The order of delivery. */
  readonly sequence: number;
  readonly type: string;
  readonly body: string;
  readonly status: WebhookDelivery["status"];
  readonly attempts: number;
  readonly queuedAt: number;
  readonly lastAttemptAt: number | null;
  readonly nextAttemptAt: number | null;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
}

/** A delivery to be written. */
export interface NewDelivery {
  readonly eventId: string;
  /** null: a test, which is not among the tenant's events. */
  readonly position: number | null;
  readonly resourceId: string;
  readonly type: string;
  readonly body: string;
}

const instant = (ms: number): string => new Date(ms).toISOString();
const orNull = (ms: number | null): string | null => (ms === null ? null : instant(ms));

/** `now`: the previous secret is not shown once it has ended. */
export const webhookInfo = (record: WebhookRecord, now: number): WebhookInfo => ({
  id: record.id,
  url: record.url,
  description: record.description,
  types: record.types === null ? null : [...record.types],
  enabled: record.isEnabled,
  disabledReason: record.disabledReason,
  failures: record.failures,
  failingSince: orNull(record.failingSince),
  pending: record.pending,
  cursor: record.cursor === null ? null : String(record.cursor),
  previousSecretUntil: orNull(
    record.previousUntil !== null && record.previousUntil > now ? record.previousUntil : null,
  ),
  createdAt: instant(record.createdAt),
  updatedAt: instant(record.updatedAt),
});

export const deliveryInfo = (record: DeliveryRecord): WebhookDelivery => ({
  id: record.eventId,
  type: record.type,
  status: record.status,
  attempts: record.attempts,
  queuedAt: instant(record.queuedAt),
  lastAttemptAt: orNull(record.lastAttemptAt),
  nextAttemptAt: orNull(record.nextAttemptAt),
  lastStatus: record.lastStatus,
  lastError: record.lastError,
  body: record.body,
});

/** The delivery of an event; null: the webhook does not receive its type. */
export function deliveryOf(event: TenantEventRecord, types: readonly string[] | null): NewDelivery | null {
  const { type } = event;
  if (types !== null && !matchesType(type, types)) return null;
  const data = tenantEvent(event);
  return {
    eventId: event.id,
    position: event.position,
    resourceId: event.subjectId,
    type,
    body: JSON.stringify({ type, timestamp: data.createdAt, data }),
  };
}

export function testDelivery(webhookId: string, eventId: string, now: number): NewDelivery {
  const type = "webhook.test";
  const data = { id: eventId, webhookId, message: "a test, requested by the owner of the webhook" };
  const body = JSON.stringify({ type, timestamp: instant(now), data });
  return { eventId, position: null, resourceId: webhookId, type, body };
}
