/**
 * The one statement that writes events. Stores put it into a statement of theirs, so an event and what it
 * tells are written together or not at all.
 *
 * Always: level and message are printed from the type and its data; the subject's kind is the first part of
 * the type.
 */
import { type EventType, type NewEvent, printEvent, subjectOf } from "@flotilla/contract/event-types";
import { sql, type Statement } from "./db/database.ts";

/** Columns of `tenant_events` as JSON. Only `eventDocument` makes one. */
interface EventDocument {
  readonly type: EventType;
  readonly subject: string;
  readonly data: NewEvent["data"];
  readonly level: string;
  readonly message: string;
  /** Set for an event that a node reported. */
  readonly node?: ReportedBy;
}

/** Which report of a node an event is. */
export interface ReportedBy {
  readonly id: string;
  readonly bootId: string;
  readonly sequence: number;
}

/** An event for `insertEvents`. */
export const eventDocument = (event: NewEvent, node?: ReportedBy): EventDocument => ({
  type: event.type,
  subject: subjectOf(event.type),
  data: event.data,
  ...printEvent(event),
  ...(node === undefined ? {} : { node }),
});

/** The same as a value of SQL. */
export const eventJson = (event: NewEvent): Statement => sql`${JSON.stringify(eventDocument(event))}::jsonb`;

/**
 * Writes an event for each of `rows`, in their order: a SELECT of tenant_id, subject_id, event (an
 * `eventDocument` as jsonb) and created_at. One that a node reported is written once, however often it is
 * reported.
 */
export const insertEvents = (rows: Statement): Statement => sql`
  INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at,
    node_id, agent_boot_id, node_sequence)
  SELECT 'ev-' || replace(gen_random_uuid()::text, '-', ''), r.tenant_id, r.event->>'subject', r.subject_id,
    r.event->>'type', r.event->'data', r.event->>'level', r.event->>'message', r.created_at,
    r.event#>>'{node,id}', r.event#>>'{node,bootId}', (r.event#>>'{node,sequence}')::bigint
  FROM (${rows}) r
  ON CONFLICT (node_id, agent_boot_id, node_sequence) WHERE node_id IS NOT NULL DO NOTHING`;
