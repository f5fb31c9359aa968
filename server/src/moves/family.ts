/**
 * Moves of machines to other nodes.
 */
import type { Family } from "../family.ts";
import { copyReconciler } from "./copies-loop.ts";
import { moveHandlers } from "./routes.ts";
import { machineMoveWorker, type MoveServices } from "./worker.ts";

export const moveFamily = (services: MoveServices) =>
  ({
    name: "moves",
    handlers: moveHandlers(services),
    workers: [machineMoveWorker(services)],
    loops: [copyReconciler(services)],
  }) satisfies Family;
