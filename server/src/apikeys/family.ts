/**
 * API keys.
 */
import type { KeyCache } from "../auth/key-cache.ts";
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { apiKeyHandlers } from "./routes.ts";
import { purgeKeys } from "./store.ts";

export const apiKeyFamily = (context: Context, keys: KeyCache) =>
  ({
    name: "apikeys",
    handlers: apiKeyHandlers(context, keys),
    // 30 days after they were revoked or expired.
    purges: { keys: ({ db, clock }, max) => purgeKeys(db, clock.now(), max) },
  }) satisfies Family;
