/**
 * Branches of machines, and checkpoints.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { checkpointHandlers } from "./checkpoints/routes.ts";
import { checkpointWorker } from "./checkpoints/worker.ts";
import { BranchFigures } from "./figures.ts";
import { pointReconciler } from "./points-loop.ts";
import { branchHandlers } from "./routes.ts";
import { branchWorker } from "./worker.ts";

export function branchFamily(services: MachineServices) {
  const figures = new BranchFigures();
  return {
    name: "branches",
    handlers: { ...branchHandlers(services), ...checkpointHandlers(services) },
    workers: [branchWorker(services, figures), checkpointWorker(services)],
    loops: [pointReconciler(services)],
    measures: figures.measures(services.context.db),
  } satisfies Family;
}
