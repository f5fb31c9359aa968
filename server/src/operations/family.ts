/**
 * Operations: their handlers, and the loop that claims them for the runner.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { operationReconciler } from "./operations-loop.ts";
import { operationHandlers } from "./routes.ts";
import type { OperationRunner } from "./run.ts";
import { purgeOperations } from "./store.ts";

export const operationFamily = (context: Context, runner: OperationRunner) =>
  ({
    name: "operations",
    handlers: operationHandlers(context),
    loops: [operationReconciler(context, runner)],
    // 30 days after they ended.
    purges: { operations: purgeOperations },
  }) satisfies Family;
