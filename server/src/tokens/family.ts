/**
 * Join tokens.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import type { Fleet } from "../link/reach.ts";
import { tokenHandlers } from "./routes.ts";
import { purgeJoinTokens } from "./store.ts";

export const tokenFamily = (context: Context, fleet: Pick<Fleet, "trust">) =>
  ({
    name: "tokens",
    handlers: tokenHandlers(context, fleet),
    // 30 days after they expired.
    purges: { joinTokens: ({ db, clock }, max) => purgeJoinTokens(db, clock.now(), max) },
  }) satisfies Family;
