/**
 * Branches of machines.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { pointReconciler } from "./points-loop.ts";
import { branchHandlers } from "./routes.ts";
import { countPoints } from "./store.ts";
import { branchWorker } from "./worker.ts";

export const branchFamily = (services: MachineServices) =>
  ({
    name: "branches",
    handlers: branchHandlers(services),
    workers: [branchWorker(services)],
    loops: [pointReconciler(services)],
    measures: [
      {
        kind: "gauge",
        name: "flotilla_branch_points",
        help: "instants of machines that nodes keep",
        labels: [],
        read: async () => [[{}, await countPoints(services.context.db)]],
      },
    ],
  }) satisfies Family;
