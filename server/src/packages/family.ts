/**
 * Packages: exports of machines, and what becomes of them in the registry.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { ExportFigures } from "./figures.ts";
import { retentionReconciler } from "./retention-loop.ts";
import { packageHandlers } from "./routes.ts";
import { exportWorker } from "./worker.ts";

export function packageFamily(services: MachineServices) {
  const { context, registry } = services;
  const figures = new ExportFigures();
  return {
    name: "packages",
    handlers: packageHandlers(services, registry),
    workers: registry.isConfigured ? [exportWorker(services, registry, figures)] : [],
    loops: [retentionReconciler(context, registry)],
    measures: figures.measures(),
  } satisfies Family;
}
