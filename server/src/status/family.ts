/**
 * Probes, metrics and the API's description.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { type HealthOptions, statusHandlers } from "./routes.ts";

export const statusFamily = (context: Context, options: HealthOptions) =>
  ({ name: "status", handlers: statusHandlers(context, options) }) satisfies Family;
