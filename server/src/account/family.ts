/**
 * What callers learn of themselves and of what they have used.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { accountHandlers } from "./routes.ts";

export const accountFamily = (context: Context) =>
  ({ name: "account", handlers: accountHandlers(context) }) satisfies Family;
