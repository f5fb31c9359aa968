/**
 * What the server counts, in Prometheus' form. One registry per running server, so that two in a process do not mix.
 */
import { collectDefaultMetrics, Counter, Histogram, Registry } from "prom-client";

/** One answered request: the endpoint's name, or `none` for a path that is not one. */
export interface RequestSeen {
  readonly name: string;
  readonly status: number;
  readonly seconds: number;
}

export interface Metrics {
  readonly registry: Registry;
  observeRequest(seen: RequestSeen): void;
  /** Stops what gathers in the background. */
  close(): void;
}

const BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const requests = new Counter({
    name: "flotilla_http_requests_total",
    help: "Answered requests by endpoint and status",
    labelNames: ["endpoint", "status"],
    registers: [registry],
  });
  const seconds = new Histogram({
    name: "flotilla_http_request_seconds",
    help: "Time from the head of a request to the end of its answer",
    labelNames: ["endpoint"],
    buckets: BUCKETS_SECONDS,
    registers: [registry],
  });
  return {
    registry,
    observeRequest({ name, status, seconds: elapsed }) {
      requests.inc({ endpoint: name, status });
      seconds.observe({ endpoint: name }, elapsed);
    },
    close: () => registry.clear(),
  };
}
