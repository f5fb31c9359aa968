/**
 * Finds what is served under a URL, by find-my-way.
 *
 * Always: a `%` in a path that does not begin an escape is taken literally.
 */
import findMyWay from "find-my-way";
import type { Page } from "./page.ts";
import type { PathEntry } from "./route-table.ts";

/** A parameter may be the path of a file. */
const PARAMETER_CHARACTERS_MAX = 16_384;

export interface Found {
  /** undefined: no such path. */
  readonly entry: PathEntry | Page | undefined;
  readonly params: Readonly<Record<string, string | undefined>>;
}

export type Find = (url: string) => Found;

const NOWHERE: Found = { entry: undefined, params: {} };

/** Makes the router of these paths. */
export function makeRouter(entries: readonly (PathEntry | Page)[]): Find {
  const router = findMyWay({ maxParamLength: PARAMETER_CHARACTERS_MAX });
  for (const entry of entries) router.on("GET", entry.url, () => undefined, entry);
  return (url) => {
    const found = router.find("GET", literalPercent(url));
    return found === null ? NOWHERE : { entry: found.store as PathEntry | Page, params: found.params };
  };
}

/** Makes every `%` of the path that does not start a valid escape an escaped percent sign. Pure. */
function literalPercent(url: string): string {
  const at = url.indexOf("?");
  const path = at < 0 ? url : url.slice(0, at);
  if (!path.includes("%")) return url;
  const fixed = path.replace(/%(?![0-9A-Fa-f]{2})/g, "%25");
  const search = at < 0 ? "" : url.slice(at);
  try {
    decodeURIComponent(fixed);
    return fixed + search;
  } catch {
    return path.replaceAll("%", "%25") + search;
  }
}
