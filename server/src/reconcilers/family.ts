/**
 * What the loops of this server have done, and the loop over rows of several families.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { clockReconciler } from "./clocks.ts";
import type { Loops } from "./driver.ts";
import { loopHandlers, loopMeasures, type LoopServer } from "./routes.ts";

export const loopFamily = (context: Context, loops: Loops, server: LoopServer) =>
  ({
    name: "reconcilers",
    handlers: loopHandlers(loops, server),
    loops: [clockReconciler(context)],
    measures: loopMeasures(loops),
  }) satisfies Family;
