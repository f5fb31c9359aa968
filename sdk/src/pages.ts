/**
 * All items of a list, page by page.
 *
 * Always: at most one page is held, and the next is asked for only when its first item is.
 */
import type { CallOptions } from "./call.ts";

const PAGE_ITEMS = 100;

interface PageParameters {
  limit?: number | undefined;
  cursor?: string | undefined;
}

/**
 * Iterates over a list of any length:
 * `for await (const machine of items((page) => flotilla.listMachines(page)))`.
 * `options` are those of each call; its query's `limit` is the size of a page, 100 without one.
 */
export async function* items<Item, Query extends PageParameters = PageParameters>(
  list: (options: CallOptions<Query>) => Promise<readonly Item[]>,
  options: CallOptions<Query> = {},
): AsyncGenerator<Item, void, undefined> {
  let cursor = options.query?.cursor;
  do {
    let next: string | undefined;
    const query = { limit: PAGE_ITEMS, ...options.query, cursor } as Query;
    const onHeaders = (headers: Headers): void => {
      next = nextCursor(headers.get("link"));
      options.onHeaders?.(headers);
    };
    yield* await list({ ...options, query, onHeaders });
    // A server that names the same page again would have no end.
    cursor = next === cursor ? undefined : next;
  } while (cursor !== undefined);
}

/** The cursor of the link to the next page. */
function nextCursor(link: string | null): string | undefined {
  const [, target] = /<([^>]*)>\s*;\s*rel="?next"?/.exec(link ?? "") ?? [];
  if (target === undefined) return undefined;
  return new URLSearchParams(target.slice(target.indexOf("?") + 1)).get("cursor") ?? undefined;
}
