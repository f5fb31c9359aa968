/**
 * Instants in requests. Pure.
 */
import { Refusal } from "@flotilla/contract/errors";

/** RFC 3339, with its time zone. */
const INSTANT = /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;

/** The years 1 to 9999: what the database accepts in the form of instantOf. */
const EARLIEST_MS = -62_135_596_800_000;
const LATEST_MS = 253_402_300_799_999;

/**
 * Epoch milliseconds. Throws a Refusal that names the field for anything that is not RFC 3339, such as
 * February 30.
 */
export function parseInstant(name: string, text: string): number {
  const [, year, month, day] = INSTANT.exec(text)?.map(Number) ?? [];
  const instant = Date.parse(text);
  if (
    day === undefined ||
    month === undefined ||
    year === undefined ||
    !(instant >= EARLIEST_MS && instant <= LATEST_MS) ||
    day > daysOf(year, month)
  )
    throw new Refusal(
      "invalid_request",
      `${name} is not an instant: write it as 2026-07-01T00:00:00Z, with + of a time zone as %2B`,
      { field: name },
    );
  return instant;
}

const daysOf = (year: number, month: number): number => new Date(Date.UTC(year, month, 0)).getUTCDate();
