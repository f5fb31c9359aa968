/**
 * The period of a usage query. Pure.
 */
import { Refusal } from "@flotilla/contract/errors";
import { parseInstant } from "../http/instant.ts";
import { monthUpTo, type Period } from "../usage/usage.ts";

/**
 * Without `to` the period ends now; without `from` it begins with the month in which it ends. Throws a Refusal for a malformed
 * instant, or a `from` after `to`.
 */
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
