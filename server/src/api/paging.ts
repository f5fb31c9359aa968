/**
 * Pages of a list and the parameters of lists: cursors, limits, label filters. Pure.
 *
 * Lists are bare arrays; with `limit` a `Link: <…>; rel="next"` header names the next page. A cursor is the
 * position of the last item, so items that are added or removed between two pages are neither repeated nor
 * skipped.
 */
import { Refusal } from "@flotilla/contract/errors";
import { type IdKind, ID_PREFIXES } from "@flotilla/contract/ids";

/** The end of the year 9999, the last time that the database accepts in the form we use. */
const TIME_MS_MAX = 253_402_300_799_999;

/** Where an item is in a list that is in the order of creation. `createdAt` in epoch milliseconds. */
interface Position {
  readonly createdAt: number;
  readonly id: string;
}

export interface Paged<T> {
  readonly items: readonly T[];
  readonly headers: Readonly<Record<string, string>>;
}

/** `found` holds one item more than `limit` when there is a next page, or ends before that. */
export function page<T>(
  found: readonly T[],
  limit: number | null,
  path: string,
  options: {
    readonly cursorOf: (item: T) => string;
    /** Further parameters of the query. */
    readonly query?: Readonly<Record<string, string>>;
    readonly label?: readonly string[];
    /** It ends before: there is a next page, although these are few. */
    readonly isCut?: boolean;
  },
): Paged<T> {
  if (limit === null || (found.length <= limit && options.isCut !== true)) return { items: found, headers: {} };
  const items = found.slice(0, limit);
  const last = items.at(-1);
  if (last === undefined) return { items, headers: {} };
  const query = new URLSearchParams({ ...options.query, limit: String(limit), cursor: options.cursorOf(last) });
  for (const label of options.label ?? []) query.append("label", label);
  return { items, headers: { link: `<${path}?${query}>; rel="next"` } };
}

export const positionOf = ({ createdAt, id }: Position): string =>
  Buffer.from(`${createdAt}.${id}`).toString("base64url");

export function parsePosition(cursor: string | undefined, kind: IdKind): Position | null {
  if (cursor === undefined) return null;
  const form = new RegExp(`^(\\d{1,15})\\.(${ID_PREFIXES[kind]}-[0-9a-f]{32})$`);
  const match = form.exec(Buffer.from(cursor, "base64url").toString("utf8"));
  const createdAt = Number(match?.[1]);
  if (match?.[2] === undefined || createdAt > TIME_MS_MAX) throw badCursor();
  return { createdAt, id: match[2] };
}

/** Where a caller takes a cursor from. `call`: which call shows it. */
interface CursorSource {
  readonly text: string;
  readonly call?: string;
}

const PAGE_BEFORE: CursorSource = { text: "the link header of the previous page" };
export const OF_EVENT: CursorSource = { text: "an event; GET /v1/events lists them", call: "GET /v1/events" };

export function parseSequence(cursor: string | undefined, source = PAGE_BEFORE): number | null {
  if (cursor === undefined) return null;
  if (!/^\d{1,15}$/.test(cursor)) throw badCursor(source);
  return Number(cursor);
}

const badCursor = ({ text, call } = PAGE_BEFORE): Refusal =>
  new Refusal("invalid_body", `cursor is not valid; take it from ${text}`, {
    field: "cursor",
    ...(call === undefined ? {} : { call }),
  });

/** `key=value` each; the value may hold further `=`. */
export function parseLabels(texts: readonly string[]): Readonly<Record<string, string>> {
  const labels: Record<string, string> = {};
  for (const text of texts) {
    const at = text.indexOf("=");
    if (at < 1) throw new Refusal("invalid_body", `label ${JSON.stringify(text)} is not of the form key=value`);
    labels[text.slice(0, at)] = text.slice(at + 1);
  }
  return labels;
}
