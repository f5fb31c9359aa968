/**
 * Events as callers see them. Pure.
 */
import type { TenantEvent } from "@flotilla/contract/events";
import type { EventLevel } from "@flotilla/contract/event-types";
import type { EventInfo } from "@flotilla/contract/machines";

export interface EventRecord {
  /** A whole number with which a cursor names the event. */
  readonly position: number;
  readonly id: string;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly level: EventLevel;
  readonly message: string;
  readonly createdAt: number;
}

export interface TenantEventRecord extends EventRecord {
  readonly subjectKind: string;
  readonly subjectId: string;
}

export const eventInfo = ({ id, type, data, level, message, createdAt }: EventRecord): EventInfo => ({
  id,
  type,
  data,
  level,
  message,
  createdAt: new Date(createdAt).toISOString(),
});

export const tenantEvent = (event: TenantEventRecord): TenantEvent => ({
  ...eventInfo(event),
  subject: { kind: event.subjectKind, id: event.subjectId },
  cursor: String(event.position),
});
