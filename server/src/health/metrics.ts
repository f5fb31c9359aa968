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

export function createMetrics(): Metrics {
  const registry = new Registry();
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
