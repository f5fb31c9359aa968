/**
 * Serves /health, /livez, /readyz, /metrics and /openapi.json.
 *
 * Always:
 * - /livez needs nothing but this process.
 * - /readyz queries the database, with its own deadline. It fails while the server is stopping (with a delay a
 *   load balancer notices before connections close), while its disk is full, and, where a node is expected, until one has
 *   reported to this server.
 * - /health and /metrics also answer while the database is unreachable, with the last known values.
 * - Concurrent requests share one query to the database.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import type { Metrics } from "./metrics.ts";
import { getClusterId, ping } from "./store.ts";

export interface ClusterCounts {
  readonly poolsTotal: number;
  readonly nodesTotal: number;
  readonly nodesReady: number;
}

export interface HealthOptions {
  readonly metrics: Metrics;
  readonly version: string;
  readonly openapi: unknown;
  /** From the nodes family. */
  readonly count: () => Promise<ClusterCounts>;
  readonly isStopping: () => boolean;
  /**
   * For a server that is ready only with a node: whether one has reported since the server started. null: it needs
   * none.
   */
  readonly hasNode: (() => Promise<boolean>) | null;
  /** Whether the embedded database has used up its reserved disk space. */
  readonly isDiskFull: () => boolean;
}

const DATABASE_TIMEOUT_MS = 2_000;
const RETRY_SECONDS = "1";

export function statusHandlers(
  context: Context,
  options: HealthOptions,
): HandlersOf<"getHealth" | "getLiveness" | "getReadiness" | "getMetrics" | "getOpenapi"> {
  const startedAt = context.clock.monotonic();
  const known = { clusterId: "", nodesTotal: 0, nodesReady: 0, poolsTotal: 0 };
  // One buffer for all answers: a caller that asks again and again must not make the server serialize or copy it each time.
  const openapi = Buffer.from(JSON.stringify(options.openapi));
  let isNodeAwaited = options.hasNode !== null;
  const count = once(async () => {
    if (known.clusterId === "") known.clusterId = await getClusterId(context.db);
    Object.assign(known, await options.count());
  });
  const checkReady = once(async () => {
    await ping(context.db);
    if (isNodeAwaited) isNodeAwaited = (await options.hasNode?.()) === false;
  });
  return {
    getHealth: async () => {
      const databaseUp = await inTime(context, count()).catch(() => false);
      const uptimeSecs = Math.floor((context.clock.monotonic() - startedAt) / 1000);
      const body = { ...known, version: options.version, appsTotal: 0, uptimeSecs, databaseUp };
      return { status: 200, body };
    },
    getLiveness: async () => ({ status: 200 }),
    getReadiness: async () => {
      if (options.isStopping()) throw notReady("the server is stopping");
      if (options.isDiskFull()) throw notReady("the server's disk is full; delete machines or images, or enlarge it");
      const isInTime = await inTime(context, checkReady());
      if (!isInTime) throw notReady(`the database did not answer within ${DATABASE_TIMEOUT_MS} ms`);
      if (isNodeAwaited) throw notReady("no node has reported yet");
      return { status: 200 };
    },
    getMetrics: async () => {
      options.metrics.setDatabaseUp(context.db.isListening());
      return { status: 200, body: await options.metrics.text(), contentType: options.metrics.contentType };
    },
    getOpenapi: async () => ({ status: 200, body: options.openapi, json: openapi }),
  };
}

const notReady = (why: string): Refusal =>
  new Refusal("unavailable", why, { headers: { "retry-after": RETRY_SECONDS } });

/** Callers during the work share its result. */
function once(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null;
  return () => {
    running ??= work().finally(() => {
      running = null;
    });
    return running;
  };
}

/** Whether it finished in time. Rejects when it failed. */
async function inTime({ clock }: Context, work: Promise<void>): Promise<boolean> {
  const waiting = new AbortController();
  const late = clock.sleep(DATABASE_TIMEOUT_MS, waiting.signal).then(() => false);
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    waiting.abort();
    work.catch(() => undefined);
  }
}
