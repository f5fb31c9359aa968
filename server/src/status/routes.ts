/**
 * Serves /health, /livez, /readyz, /metrics and /openapi.json.
 *
 * Always:
 * - /livez needs nothing but this process.
 * - /readyz queries the database, with its own deadline. It fails while the server is stopping (with a delay
 *   a load balancer notices before connections close), while its disk is full, and, where a node is expected,
 *   until one has reported to this server.
 * - /health and /metrics also answer while the database is unreachable, with the last known values.
 * - Concurrent requests share one query to the database.
 */
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import type { Metrics } from "./metrics.ts";
import { inTime, singleFlight, readiness, type ReadyOptions } from "./ready.ts";
import { getClusterId } from "./store.ts";

export interface ClusterCounts {
  readonly appsTotal: number;
  readonly poolsTotal: number;
  readonly nodesTotal: number;
  readonly nodesReady: number;
}

export interface HealthOptions extends ReadyOptions {
  readonly metrics: Metrics;
  readonly version: string;
  readonly openapi: unknown;
  /** From the nodes family. */
  readonly count: () => Promise<ClusterCounts>;
}

export function statusHandlers(
  context: Context,
  options: HealthOptions,
): HandlersOf<"getHealth" | "getLiveness" | "getReadiness" | "getMetrics" | "getOpenapi"> {
  const startedAt = context.clock.monotonic();
  const known = { clusterId: "", nodesTotal: 0, nodesReady: 0, appsTotal: 0, poolsTotal: 0 };
  // One buffer for all answers: a caller that asks again and again must not make the server serialize or copy
  // it each time.
  const openapi = Buffer.from(JSON.stringify(options.openapi));
  const checkReady = readiness(context, options);
  const count = singleFlight(async () => {
    if (known.clusterId === "") known.clusterId = await getClusterId(context.db);
    Object.assign(known, await options.count());
  });
  return {
    getHealth: async () => {
      const databaseUp = await inTime(context, count()).catch(() => false);
      const uptimeSecs = Math.floor((context.clock.monotonic() - startedAt) / 1000);
      const body = { ...known, version: options.version, uptimeSecs, databaseUp };
      return { status: 200, body };
    },
    getLiveness: async () => ({ status: 200 }),
    getReadiness: async () => {
      await checkReady();
      return { status: 200 };
    },
    getMetrics: async () => {
      options.metrics.setDatabaseUp(context.db.isListening());
      return { status: 200, body: await options.metrics.text(), contentType: options.metrics.contentType };
    },
    getOpenapi: async () => ({ status: 200, body: options.openapi, json: openapi }),
  };
}
