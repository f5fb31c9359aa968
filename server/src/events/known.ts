/**
 * Which events that a node reports this release can write. Pure.
 */
import { EVENTS, type EventType, type NewEvent, subjectOf } from "@flotilla/contract/event-types";
import { type Check, compile } from "../json/validate.ts";

const CHECKS = new Map<string, Check>(Object.entries(EVENTS).map(([type, { data }]) => [type, compile(data)]));

/** null: its type is unknown here, or is of another subject, or its data does not fit. */
export function knownEvent(
  subject: string,
  { type, data }: { readonly type: string; readonly data: object },
): NewEvent | null {
  const check = subjectOf(type) === subject ? CHECKS.get(type) : undefined;
  if (check === undefined || check(data) !== undefined) return null;
  return { type: type as EventType, data } as NewEvent;
}
