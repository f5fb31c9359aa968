/**
 * Pools of machines that wait.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { poolReconciler } from "./pools-loop.ts";
import { poolHandlers } from "./routes.ts";

export const poolFamily = (services: MachineServices) =>
  ({ name: "pools", handlers: poolHandlers(services), loops: [poolReconciler(services)] }) satisfies Family;
