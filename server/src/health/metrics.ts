/**
 * The server's metrics, in Prometheus' format. One registry per running server, so that two in a process do not mix.
 */
import { collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { RequestCounts, type RequestSeen } from "./request-counts.ts";

export interface Metrics {
  readonly contentType: string;
  setDatabaseUp(isUp: boolean): void;
  observeRequest(seen: RequestSeen): void;
  /** The text of all metrics. */
  text(): Promise<string>;
  /** Stops collecting in the background. */
  close(): void;
}

/** Runs that do not agree with what their node reports of machines. Both are 0 a few seconds after any change. */
export interface RunMismatches {
  /** Open runs whose boot no machine of a reporting node has. */
  readonly openWithoutBoot: number;
  /** Machines that run on a reporting node without an open run. */
  readonly bootWithoutRun: number;
}

/** `countRunMismatches`: of a program that has the database of runs. */
export function createMetrics(countRunMismatches?: () => Promise<RunMismatches>): Metrics {
  const registry = new Registry();
  if (countRunMismatches !== undefined) registerRunMismatches(registry, countRunMismatches);
  collectDefaultMetrics({ register: registry });
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
    text: async () => `${await registry.metrics()}\n${requests.text()}`,
    close: () => registry.clear(),
  };
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
