/**
 * Puts the families together: every handler, who knows nodes, and what runs in the background.
 *
 * The only file that knows all families; http/ knows none of them.
 */
import type { NodeAuthenticator } from "./auth/authenticate.ts";
import type { KeyCache } from "./auth/key-cache.ts";
import type { ServerSettings } from "./config.ts";
import type { Context } from "./context.ts";
import { accountHandlers } from "./account/routes.ts";
import { apiKeyHandlers } from "./apikeys/routes.ts";
import type { Metrics } from "./health/metrics.ts";
import { healthHandlers } from "./health/routes.ts";
import type { AnyHandlers, Handlers } from "./http/handler.ts";
import { planHandlers } from "./plans/routes.ts";
import { tenantHandlers } from "./tenants/routes.ts";

export interface AssemblyOptions {
  readonly context: Context;
  readonly settings: ServerSettings;
  readonly keys: KeyCache;
  readonly metrics: Metrics;
  readonly version: string;
  readonly openapi: unknown;
  readonly isStopping: () => boolean;
}

export interface Assembly {
  readonly handlers: AnyHandlers;
  readonly nodes: NodeAuthenticator;
  /** Starts what runs in the background. */
  start(): void;
  /** Ends it; called when no request runs any more. */
  stop(): Promise<void>;
}

export function assemble({ context, keys, ...options }: AssemblyOptions): Assembly {
  const handlers = {
    ...healthHandlers(context, { ...options, countNodes: async () => ({ nodesTotal: 0, nodesReady: 0 }) }),
    ...accountHandlers(context),
    ...apiKeyHandlers(context, keys),
    ...planHandlers(context),
    ...tenantHandlers(context, keys),
  } satisfies Partial<Handlers>;
  return {
    // Each handler's types were checked against the contract above; the pipeline serves them all alike.
    handlers: handlers as unknown as AnyHandlers,
    nodes: { authenticate: async () => undefined },
    start: () => undefined,
    stop: async () => undefined,
  };
}
