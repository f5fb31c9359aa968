/**
 * Recorded calls.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { auditHandlers } from "./routes.ts";
import { purgeAudit } from "./store.ts";

/** `days`: how long calls are kept. */
export const auditFamily = (context: Context, days: number) =>
  ({
    name: "audit",
    handlers: auditHandlers(context),
    purges: { audit: (of, max) => purgeAudit(of, days, max) },
  }) satisfies Family;
