/**
 * What the server counts, in Prometheus' form. One registry per running server, so that two in a process do not mix.
 */
import { collectDefaultMetrics, Registry } from "prom-client";
import { RequestCounts, type RequestSeen } from "./request-counts.ts";

export interface Metrics {
  readonly contentType: string;
  observeRequest(seen: RequestSeen): void;
  /** All that is counted. */
  text(): Promise<string>;
  /** Stops what gathers in the background. */
  close(): void;
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const requests = new RequestCounts();
  return {
    contentType: registry.contentType,
    observeRequest: (seen) => requests.observe(seen),
    text: async () => `${await registry.metrics()}\n${requests.text()}`,
    close: () => registry.clear(),
  };
}
