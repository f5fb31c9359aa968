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
  /** Adds the text of metrics that are printed elsewhere; it ends with a line break. */
  addText(read: () => string): void;
  /** The text of all metrics. */
  text(): Promise<string>;
  /** Stops collecting in the background. */
  close(): void;
}

/**
 * Gauges of the library with the ending of counters, which `rate` would misread. Each is the sum of one that
 * stays.
 */
const MISNAMED = ["nodejs_active_resources_total", "nodejs_active_handles_total", "nodejs_active_requests_total"];

export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const database = new Gauge({
    name: "flotilla_database_up",
    help: "1 while the server has its database, 0 while it does not answer",
    registers: [registry],
  });
  const requests = new RequestCounts();
  const texts = [() => requests.text()];
  return {
    contentType: registry.contentType,
    setDatabaseUp: (isUp) => database.set(isUp ? 1 : 0),
    observeRequest: (seen) => requests.observe(seen),
    add: (measures) => measures.forEach((measure) => register(registry, measure)),
    addText: (read) => void texts.push(read),
    text: async () => `${await registry.metrics()}\n${texts.map((read) => read()).join("\n")}`,
    close: () => registry.clear(),
  };
}

function register(registry: Registry, { kind, name, help, labels, read }: Measure): void {
  const options = { name, help, labelNames: labels, registers: [registry] };
  const readOrNull = async () => {
    try {
      return await read();
    } catch {
      return null;
    }
  };
  if (kind === "gauge")
    new Gauge({
      ...options,
      async collect() {
        const values = await readOrNull();
        if (values === null) return;
        this.reset();
        for (const [labelled, value] of values) this.set(labelled, value);
      },
    });
  else
    new Counter({
      ...options,
      async collect() {
        const values = await readOrNull();
        if (values === null) return;
        this.reset();
        for (const [labelled, value] of values) this.inc(labelled, value);
      },
    });
}
