/**
 * Tenants, and their test clocks.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { tenantHandlers } from "./routes.ts";

export const tenantFamily = (context: Context) =>
  ({ name: "tenants", handlers: tenantHandlers(context) }) satisfies Family;
