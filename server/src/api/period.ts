/**
 * The period of a query with `from` and `to`. Pure.
 */
import { Refusal } from "@flotilla/contract/errors";
import { parseInstant } from "./instant.ts";

/** Instants in epoch milliseconds. */
export interface QueriedPeriod {
  readonly from: number;
  readonly to: number;
}

/**
 * Without `to` the period ends at `end`; without `from` it begins at `startOf` its end. Throws a Refusal for
 * a malformed instant, or a `from` after `to`.
 */
export function parsePeriod(
  { from, to }: { readonly from?: string | undefined; readonly to?: string | undefined },
  { end, startOf }: { readonly end: number; readonly startOf: (end: number) => number },
): QueriedPeriod {
  const until = to === undefined ? end : parseInstant("to", to);
  const start = from === undefined ? startOf(until) : parseInstant("from", from);
  if (start > until)
    throw new Refusal(
      "invalid_request",
      `from (${new Date(start).toISOString()}) is later than to (${new Date(until).toISOString()})`,
    );
  return { from: start, to: until };
}
