/**
 * Apps.
 */
import type { Family, Measure } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { appReconciler } from "./apps-loop.ts";
import { appHandlers } from "./routes.ts";
import { countStatuses, purgeApps } from "./store.ts";
import { appWorkers } from "./worker.ts";

export function appFamily(services: MachineServices) {
  return {
    name: "apps",
    handlers: appHandlers(services),
    workers: appWorkers(services),
    loops: [appReconciler(services)],
    // Destroyed apps, with their releases: their names are their tenants' for 30 days.
    purges: { apps: ({ db, clock }, max) => purgeApps(db, clock.now(), max) },
    measures: [instances(services)],
  } satisfies Family;
}

const instances = ({ context: { db } }: Pick<MachineServices, "context">): Measure => ({
  kind: "gauge",
  name: "flotilla_app_instances",
  help: "instances of apps: in the tables of targets, not in them, and those that leave",
  labels: ["state"],
  async read() {
    const { routed, waiting, leaving } = await countStatuses(db);
    return [
      [{ state: "routed" }, routed],
      [{ state: "waiting" }, waiting],
      [{ state: "leaving" }, leaving],
    ];
  },
});
