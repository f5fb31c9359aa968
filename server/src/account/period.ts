/**
 * The period that a caller asks usage of. Pure.
 */
import { Refusal } from "@flotilla/contract/errors";
import { monthUpTo, type Period } from "../usage/usage.ts";

/** RFC 3339, with its time zone. */
const INSTANT = /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;

/** Up to now unless `to` is named, from the start of that month unless `from` is. Throws a Refusal for anything else. */
export function parsePeriod(
  { from, to }: { readonly from?: string | undefined; readonly to?: string | undefined },
  now: number,
): Period {
  const end = to === undefined ? now : parseInstant("to", to);
  const start = from === undefined ? monthUpTo(end).from : parseInstant("from", from);
  if (start > end)
    throw new Refusal(
      "invalid_request",
      `from (${new Date(start).toISOString()}) is later than to (${new Date(end).toISOString()})`,
    );
  return { from: start, to: end };
}

function parseInstant(name: string, text: string): number {
  const [, year, month, day] = INSTANT.exec(text)?.map(Number) ?? [];
  const instant = Date.parse(text);
  if (
    day === undefined ||
    month === undefined ||
    year === undefined ||
    Number.isNaN(instant) ||
    day > daysOf(year, month)
  )
    throw new Refusal(
      "invalid_request",
      `${name} is not an instant: write it as 2026-07-01T00:00:00Z, with + of a time zone as %2B`,
    );
  return instant;
}

const daysOf = (year: number, month: number): number => new Date(Date.UTC(year, month, 0)).getUTCDate();
