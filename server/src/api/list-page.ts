/**
 * Pages of lists that are short enough to be read whole: keys, tenants, plans, nodes, tokens, images. Pure.
 *
 * Without `limit` and `cursor` a list is complete and in its usual order. With one of them it is in the order
 * of `keyOf`, and a `Link: <…>; rel="next"` header names the next page. A cursor is the key of the last item
 * of this list, so items that are added or removed between two pages are neither repeated nor skipped.
 */
import { Refusal } from "@flotilla/contract/errors";

export interface ListPage<T> {
  readonly body: T[];
  readonly headers: Readonly<Record<string, string>>;
}

export interface PageRequest {
  readonly limit?: number;
  readonly cursor?: string;
}

export interface ListShape<T> {
  readonly path: string;
  /** Tells items apart; the order of the list. */
  readonly keyOf: (item: T) => string;
  /** Query parameters to repeat in the address of the next page. */
  readonly kept?: Readonly<Record<string, string>>;
}

/** Throws a Refusal for an invalid cursor. */
export function listPage<T>(items: readonly T[], { limit, cursor }: PageRequest, shape: ListShape<T>): ListPage<T> {
  if (limit === undefined && cursor === undefined) return { body: [...items], headers: {} };
  const after = cursor === undefined ? null : keyOfCursor(cursor, shape.path);
  const keyed = items
    .map((item) => ({ item, key: shape.keyOf(item) }))
    .sort((one, other) => compare(one.key, other.key));
  const rest = keyed.filter(({ key }) => after === null || compare(key, after) > 0);
  const shown = rest.slice(0, limit);
  const body = shown.map(({ item }) => item);
  const last = shown.at(-1);
  if (last === undefined || shown.length === rest.length) return { body, headers: {} };
  const next = Buffer.from(`${shape.path} ${last.key}`).toString("base64url");
  const query = new URLSearchParams({ ...shape.kept, limit: String(limit), cursor: next });
  return { body, headers: { link: `<${shape.path}?${query}>; rel="next"` } };
}

const compare = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);

function keyOfCursor(cursor: string, path: string): string {
  const text = Buffer.from(cursor, "base64url").toString("utf8");
  const isWhole = Buffer.from(text).toString("base64url") === cursor;
  if (isWhole && text.startsWith(`${path} `)) return text.slice(path.length + 1);
  const why = "cursor is not valid; take it from the link header of the previous page";
  throw new Refusal("invalid_body", why, { field: "cursor" });
}
