/**
 * Nodes, the authorities that they trust, where machines are placed, and the servers beside this one.
 */
import type { Context } from "../context.ts";
import type { Family, Measure } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { nodeDrainWorker } from "./drain-worker.ts";
import { countLoss } from "./loss-store.ts";
import { nodeReconciler } from "./nodes-loop.ts";
import { authorityHandlers, nodeHandlers, placementHandlers } from "./routes.ts";
import { serverReconciler } from "./servers-loop.ts";
import { removeServer, type ServerIdentity } from "./servers-store.ts";
import { listPressure } from "./store.ts";
import { nodeUpgradeWorker } from "./upgrade-worker.ts";

export function nodeFamily(services: MachineServices, server: ServerIdentity, databaseUrl: string | null) {
  const { context, fleet } = services;
  return {
    name: "nodes",
    handlers: { ...nodeHandlers(services, databaseUrl), ...authorityHandlers(fleet), ...placementHandlers(services) },
    workers: [nodeDrainWorker(services), nodeUpgradeWorker(services)],
    loops: [nodeReconciler(context), serverReconciler(context, server)],
    measures: [pressure(context), loss(context)],
    // A row that stays is ignored soon.
    stop: () => removeServer(context, server).catch(() => undefined),
  } satisfies Family;
}

/** The pressure of the nodes that report it: the others are left out. */
const pressure = ({ db }: Context): Measure => ({
  kind: "gauge",
  name: "flotilla_node_pressure_ratio",
  help: "share of the last minute in which some, or all (full), processes of a node's host waited for a resource",
  labels: ["node", "resource", "kind"],
  async read() {
    const nodes = await listPressure(db);
    return nodes.flatMap(({ id: node, pressure: waits }) =>
      Object.entries(waits).flatMap(([resource, { some, full }]) => [
        [{ node, resource, kind: "some" }, some / 100] as const,
        [{ node, resource, kind: "full" }, full / 100] as const,
      ]),
    );
  },
});

const loss = ({ db }: Context): Measure => ({
  kind: "gauge",
  name: "flotilla_unreachable_nodes",
  help: "nodes that do not report: those whose replaceable machines are made elsewhere, and those of which nothing is replaced (held)",
  labels: ["decision"],
  async read() {
    const { lost, held } = await countLoss(db);
    return [
      [{ decision: "replaced" }, lost],
      [{ decision: "held" }, held],
    ];
  },
});
