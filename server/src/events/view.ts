/**
 * Events as callers see them. Pure.
 */
import type { TenantEvent } from "@flotilla/contract/events";
import type { EventInfo, EventLevel } from "@flotilla/contract/machines";

export interface EventRecord {
  /** A whole number with which a cursor names the event. */
  readonly position: number;
  readonly id: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly createdAt: number;
}

export interface TenantEventRecord extends EventRecord {
  readonly machineId: string | null;
  readonly webhookId: string | null;
}

export const eventInfo = ({ id, level, message, createdAt }: EventRecord): EventInfo => ({
  id,
  level,
  message,
  createdAt: new Date(createdAt).toISOString(),
});

export const tenantEvent = (event: TenantEventRecord): TenantEvent => ({
  ...eventInfo(event),
  machineId: event.machineId,
  webhookId: event.webhookId,
  cursor: String(event.position),
});
