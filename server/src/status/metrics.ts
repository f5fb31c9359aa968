/**
 * The server's metrics, in Prometheus' format. One registry per running server, so that two in a process do
 * not mix.
 */
import { collectDefaultMetrics, Counter, Gauge, Registry } from "prom-client";
import type { Measure } from "../family.ts";
import { RequestCounts, type RequestSeen } from "./request-counts.ts";

export interface Metrics {
  readonly contentType: string;
  setDatabaseUp(isUp: boolean): void;
  observeRequest(seen: RequestSeen): void;
  /** Adds metrics of families. */
  add(measures: readonly Measure[]): void;
  /** The text of all metrics. */
  text(): Promise<string>;
  /** Stops collecting in the background. */
  close(): void;
}

/**
 * Runs that do not agree with what their node reports of machines. Both are 0 a few seconds after any change.
 */
export interface RunMismatches {
  /** Open runs whose boot no machine of a reporting node has. */
  readonly openWithoutBoot: number;
  /** Machines that run on a reporting node without an open run. */
  readonly bootWithoutRun: number;
}

/** How much processes of a node's host waited, in percent. */
interface NodeWaits {
  readonly id: string;
  readonly pressure: Readonly<Record<string, { readonly some: number; readonly full: number }>>;
}

/** What a program that has the whole database reads for its metrics. */
export interface FleetReads {
  countRunMismatches(): Promise<RunMismatches>;
  listPressure(): Promise<readonly NodeWaits[]>;
  /** Nodes that do not report, by what was decided of their machines that can be replaced. */
  countLoss(): Promise<{ readonly held: number; readonly lost: number }>;
}

/**
 * Gauges of the library with the ending of counters, which `rate` would misread. Each is the sum of one that
 * stays.
 */
const MISNAMED = ["nodejs_active_resources_total", "nodejs_active_handles_total", "nodejs_active_requests_total"];

export function createMetrics(fleet?: FleetReads): Metrics {
  const registry = new Registry();
  if (fleet !== undefined) {
    registerRunMismatches(registry, () => fleet.countRunMismatches());
    registerPressure(registry, () => fleet.listPressure());
    registerLoss(registry, () => fleet.countLoss());
  }
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const database = new Gauge({
    name: "flotilla_database_up",
    help: "1 while the server has its database, 0 while it does not answer",
    registers: [registry],
  });
  const requests = new RequestCounts();
  return {
    contentType: registry.contentType,
    setDatabaseUp: (isUp) => database.set(isUp ? 1 : 0),
    observeRequest: (seen) => requests.observe(seen),
    add: (measures) => measures.forEach((measure) => register(registry, measure)),
    text: async () => `${await registry.metrics()}\n${requests.text()}`,
    close: () => registry.clear(),
  };
}

function register(registry: Registry, { kind, name, help, labels, read }: Measure): void {
  const options = { name, help, labelNames: labels, registers: [registry] };
  if (kind === "gauge")
    new Gauge({
      ...options,
      async collect() {
        for (const [labelled, value] of await read()) this.set(labelled, value);
      },
    });
  else
    new Counter({
      ...options,
      async collect() {
        this.reset();
        for (const [labelled, value] of await read()) this.inc(labelled, value);
      },
    });
}

/** Counted when the metrics are read, which takes an admin key. */
function registerRunMismatches(registry: Registry, count: () => Promise<RunMismatches>): void {
  new Gauge({
    name: "flotilla_run_mismatches",
    help: "open runs without a running boot, and running boots without an open run; both become 0 within seconds",
    labelNames: ["kind"],
    registers: [registry],
    async collect() {
      // Without the database the last counts stay; flotilla_database_up says why.
      const counts = await count().catch(() => null);
      if (counts === null) return;
      this.set({ kind: "run_without_boot" }, counts.openWithoutBoot);
      this.set({ kind: "boot_without_run" }, counts.bootWithoutRun);
    },
  });
}

function registerLoss(registry: Registry, count: () => ReturnType<FleetReads["countLoss"]>): void {
  new Gauge({
    name: "flotilla_unreachable_nodes",
    help: "nodes that do not report: those whose replaceable machines are made elsewhere, and those of which nothing is replaced (held)",
    labelNames: ["decision"],
    registers: [registry],
    async collect() {
      const counts = await count().catch(() => null);
      if (counts === null) return;
      this.set({ decision: "replaced" }, counts.lost);
      this.set({ decision: "held" }, counts.held);
    },
  });
}

/** Registers the pressure of the nodes that report it. */
function registerPressure(registry: Registry, list: () => Promise<readonly NodeWaits[]>): void {
  new Gauge({
    name: "flotilla_node_pressure_ratio",
    help: "share of the last minute in which some, or all (full), processes of a node's host waited for a resource",
    labelNames: ["node", "resource", "kind"],
    registers: [registry],
    async collect() {
      const nodes = await list().catch(() => null);
      if (nodes === null) return;
      // Nodes that do not report any more are left out.
      this.reset();
      for (const { id, pressure } of nodes)
        for (const [resource, waits] of Object.entries(pressure))
          for (const kind of ["some", "full"] as const) this.set({ node: id, resource, kind }, waits[kind] / 100);
    },
  });
}
