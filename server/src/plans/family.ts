/**
 * Plans, and the rates that they charge.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { planHandlers } from "./routes.ts";

export const planFamily = (context: Context) => ({ name: "plans", handlers: planHandlers(context) }) satisfies Family;
