/**
 * Leases on branches of machines.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { leaseReconciler } from "./leases-loop.ts";
import { leaseHandlers } from "./routes.ts";
import { purgeLeases } from "./store.ts";

export const leaseFamily = (services: MachineServices) =>
  ({
    name: "leases",
    handlers: leaseHandlers(services),
    loops: [leaseReconciler(services)],
    purges: { leases: purgeLeases },
  }) satisfies Family;
