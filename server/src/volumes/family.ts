/**
 * Volumes, which have no storage.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { volumeHandlers } from "./routes.ts";

export const volumeFamily = (context: Context) =>
  ({ name: "volumes", handlers: volumeHandlers(context) }) satisfies Family;
