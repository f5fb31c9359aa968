/**
 * Events of tenants.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { eventHandlers } from "./routes.ts";
import { purgeEvents } from "./store.ts";

export const eventFamily = (context: Context) =>
  ({
    name: "events",
    handlers: eventHandlers(context),
    // After 30 days.
    purges: { events: purgeEvents },
  }) satisfies Family;
