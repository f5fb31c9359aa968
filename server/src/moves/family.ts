/**
 * Moves of machines to other nodes.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { copyReconciler } from "./copies-loop.ts";
import { moveHandlers } from "./routes.ts";
import { machineMoveWorker } from "./worker.ts";

export const moveFamily = (services: MachineServices) =>
  ({
    name: "moves",
    handlers: moveHandlers(services),
    workers: [machineMoveWorker(services)],
    loops: [copyReconciler(services)],
  }) satisfies Family;
