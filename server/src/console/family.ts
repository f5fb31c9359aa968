/**
 * The console: sign-in of browsers. pages.ts serves its files.
 */
import type { KeyCache } from "../auth/key-cache.ts";
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { consoleHandlers } from "./routes.ts";
import { purgeExpired } from "./store.ts";

export const consoleFamily = (context: Context, keys: KeyCache) =>
  ({
    name: "console",
    handlers: consoleHandlers(context, keys),
    purges: { consoleSessions: ({ db, clock }, max) => purgeExpired(db, clock.now(), max) },
  }) satisfies Family;
