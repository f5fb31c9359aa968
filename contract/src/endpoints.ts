/**
 * The table of all endpoints, by name. The name is the handler's name in server/, the method's name in sdk/
 * and the operationId in OpenAPI.
 */
import { apiKeyEndpoints } from "./apikeys.ts";
import { appEndpoints } from "./apps.ts";
import { billingEndpoints } from "./billing.ts";
import { auditEndpoints } from "./audit.ts";
import { branchEndpoints } from "./branches.ts";
import { checkpointEndpoints } from "./checkpoints.ts";
import { consoleEndpoints } from "./console.ts";
import type { Endpoint } from "./endpoint.ts";
import { eventEndpoints } from "./events.ts";
import { execEndpoints } from "./exec.ts";
import { fileEndpoints } from "./files.ts";
import { statusEndpoints } from "./status.ts";
import { imageEndpoints } from "./images.ts";
import { loopEndpoints } from "./loops.ts";
import { machineEndpoints } from "./machines.ts";
import { nodeEndpoints } from "./nodes.ts";
import { operationEndpoints } from "./operations.ts";
import { packageEndpoints } from "./packages.ts";
import { placementEndpoints } from "./placement.ts";
import { planEndpoints } from "./plans.ts";
import { poolEndpoints } from "./pools.ts";
import { registryEndpoints } from "./registry.ts";
import { tenantEndpoints } from "./tenants.ts";
import { usageEndpoints } from "./usage.ts";
import { volumeEndpoints } from "./volumes.ts";
import { webhookEndpoints } from "./webhooks.ts";

export const endpoints = {
  ...statusEndpoints,
  ...usageEndpoints,
  ...billingEndpoints,
  ...apiKeyEndpoints,
  ...consoleEndpoints,
  ...auditEndpoints,
  ...machineEndpoints,
  ...eventEndpoints,
  ...webhookEndpoints,
  ...execEndpoints,
  ...fileEndpoints,
  ...branchEndpoints,
  ...checkpointEndpoints,
  ...imageEndpoints,
  ...registryEndpoints,
  ...packageEndpoints,
  ...appEndpoints,
  ...nodeEndpoints,
  ...loopEndpoints,
  ...placementEndpoints,
  ...operationEndpoints,
  ...planEndpoints,
  ...poolEndpoints,
  ...volumeEndpoints,
  ...tenantEndpoints,
} as const satisfies Record<string, Endpoint>;

export type Endpoints = typeof endpoints;
export type EndpointName = keyof Endpoints;

/** The same table with wider types, for code that iterates over all endpoints. */
export const endpointList: readonly (readonly [EndpointName, Endpoint])[] = Object.entries(endpoints) as [
  EndpointName,
  Endpoint,
][];
