/**
 * Serves /health, /livez, /readyz, /metrics and /openapi.json.
 *
 * Always: /livez needs nothing but this process; /readyz asks the database each time, with a deadline of its own, and
 * says no while the server is stopping, so that a load balancer moves on before connections close.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import type { Metrics } from "./metrics.ts";
import { getClusterId, ping } from "./store.ts";

export interface ClusterCounts {
  readonly nodesTotal: number;
  readonly nodesReady: number;
}

export interface HealthOptions {
  readonly metrics: Metrics;
  readonly version: string;
  readonly openapi: unknown;
  /** From the nodes family. */
  readonly countNodes: () => Promise<ClusterCounts>;
  readonly isStopping: () => boolean;
}

const READY_TIMEOUT_MS = 2_000;

export function healthHandlers(
  context: Context,
  options: HealthOptions,
): HandlersOf<"getHealth" | "getLiveness" | "getReadiness" | "getMetrics" | "getOpenapi"> {
  const startedAt = context.clock.monotonic();
  let clusterId: string | undefined;
  return {
    getHealth: async () => {
      clusterId ??= await getClusterId(context.db);
      const body = {
        clusterId,
        version: options.version,
        ...(await options.countNodes()),
        appsTotal: 0,
        poolsTotal: 0,
        uptimeSecs: Math.floor((context.clock.monotonic() - startedAt) / 1000),
      };
      return { status: 200, body };
    },
    getLiveness: async () => ({ status: 200 }),
    getReadiness: async () => {
      if (options.isStopping()) throw new Refusal("unavailable", "the server is stopping");
      const waiting = new AbortController();
      const answered = ping(context.db).then(() => true);
      const late = context.clock.sleep(READY_TIMEOUT_MS, waiting.signal).then(() => false);
      try {
        if (!(await Promise.race([answered, late])))
          throw new Refusal("unavailable", `the database did not answer within ${READY_TIMEOUT_MS} ms`);
      } finally {
        waiting.abort();
        answered.catch(() => undefined);
      }
      return { status: 200 };
    },
    getMetrics: async () => ({
      status: 200,
      body: await options.metrics.text(),
      contentType: options.metrics.contentType,
    }),
    getOpenapi: async () => ({ status: 200, body: options.openapi }),
  };
}
