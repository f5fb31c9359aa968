/**
 * Where tests keep what they would otherwise make again in each run.
 */
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The programs' cache directory. */
export function cacheDirectory(): string {
  const { FLOTILLA_CACHE_DIR: own, XDG_CACHE_HOME: xdg, HOME: home } = process.env;
  return own || join(xdg || join(home || tmpdir(), ".cache"), "flotilla");
}
