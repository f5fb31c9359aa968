/**
 * Filters, order and pages of the list of sandboxes. Pure.
 *
 * Always: a page's token is the start and the id of its last sandbox, so sandboxes that come and go between
 * two pages are neither repeated nor skipped.
 */
import { sandboxOf } from "./ids.ts";
import { stateOf } from "./record.ts";
import { Refused } from "./refused.ts";
import type { Sandbox } from "./sandboxes.ts";

const LIMIT = 100;

export interface Listing {
  readonly states: readonly string[];
  readonly metadata: Readonly<Record<string, string>>;
  readonly template: string | null;
  /** Epoch milliseconds. */
  readonly startedAfter: number | null;
  readonly isAscending: boolean;
  readonly limit: number;
  readonly after: string | null;
}

/** Throws a Refused. */
export function listingOf(query: URLSearchParams): Listing {
  const limit = Number(query.get("limit") ?? LIMIT);
  if (!Number.isInteger(limit) || limit < 1 || limit > LIMIT)
    throw new Refused(400, `limit is not a number from 1 to ${LIMIT}`);
  const startedAfter = query.get("startedAfter");
  if (startedAfter !== null && Number.isNaN(Date.parse(startedAfter)))
    throw new Refused(400, "startedAfter is not a time");
  const token = query.get("nextToken");
  const after = token === null ? null : Buffer.from(token, "base64url").toString("utf8");
  if (after !== null && !/^[0-9TZ:.-]+ i[0-9a-f]{32}$/.test(after))
    throw new Refused(400, "nextToken is not one of ours");
  const states = query
    .getAll("state")
    .flatMap((text) => text.split(","))
    .filter((text) => text !== "");
  return {
    states: states.length === 0 ? ["running", "paused"] : states,
    metadata: metadataOf(query.get("metadata")),
    template: query.get("template"),
    startedAfter: startedAfter === null ? null : Date.parse(startedAfter),
    isAscending: query.get("order") === "asc",
    limit,
    after,
  };
}

/** The pairs that a sandbox must have. Each is encoded once more than its parameter. Throws a Refused. */
function metadataOf(text: string | null): Record<string, string> {
  const pairs = [...new URLSearchParams(text ?? "")];
  try {
    return Object.fromEntries(pairs.map(([key, value]) => [decodeURIComponent(key), decodeURIComponent(value)]));
  } catch {
    throw new Refused(400, "metadata is not encoded as E2B's clients do");
  }
}

/** The sandboxes of one page, and the token of the next. */
export function pageOf(
  sandboxes: readonly Sandbox[],
  listing: Listing,
): { readonly page: readonly Sandbox[]; readonly next: string | null } {
  const sign = listing.isAscending ? 1 : -1;
  const ordered = sandboxes
    .filter((sandbox) => isListed(sandbox, listing))
    .map((sandbox) => ({ sandbox, key: `${sandbox.machine.createdAt} ${sandboxOf(sandbox.machine.id)}` }))
    .toSorted((one, other) => (one.key < other.key ? -sign : sign))
    .filter(({ key }) => listing.after === null || (listing.isAscending ? key > listing.after : key < listing.after));
  const shown = ordered.slice(0, listing.limit);
  const last = shown.at(-1);
  const hasMore = ordered.length > shown.length && last !== undefined;
  return {
    page: shown.map(({ sandbox }) => sandbox),
    next: hasMore ? Buffer.from(last.key).toString("base64url") : null,
  };
}

function isListed({ machine, facts }: Sandbox, listing: Listing): boolean {
  const { startedAfter, template } = listing;
  if (!listing.states.includes(stateOf(machine))) return false;
  if (startedAfter !== null && Date.parse(machine.createdAt) < startedAfter) return false;
  if (template !== null && facts.template !== template && facts.template.split(":")[0] !== template) return false;
  return Object.entries(listing.metadata).every(([key, value]) => facts.metadata[key] === value);
}
