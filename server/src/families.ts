/**
 * Every family of the server: one line each, in the order of their rooms (scripts/tidy/rooms.ts), which
 * `npm run tidy` compares.
 *
 * Always: each endpoint of the contract has exactly one handler. One without does not compile; one with two
 * keeps the server from starting.
 */
import type { Resolve } from "@flotilla/base/checked-request";
import { accountFamily } from "./account/family.ts";
import type { AnyHandlers, Handlers } from "./api/handler.ts";
import { apiKeyFamily } from "./apikeys/family.ts";
import { auditFamily } from "./audit/family.ts";
import type { KeyCache } from "./auth/key-cache.ts";
import { billingFamily } from "./billing/family.ts";
import type { ServerSettings } from "./config.ts";
import { consoleFamily } from "./console/family.ts";
import { eventFamily } from "./events/family.ts";
import type { Family } from "./family.ts";
import { imageFamily } from "./images/family.ts";
import type { IngressServices } from "./ingress/admit.ts";
import { appFamily } from "./apps/family.ts";
import { branchFamily } from "./branches/family.ts";
import { ingressFamily } from "./ingress/family.ts";
import { machineFamily } from "./machines/family.ts";
import type { MachineServices } from "./machines/services.ts";
import { leaseFamily } from "./leases/family.ts";
import { moveFamily } from "./moves/family.ts";
import { nodeFamily } from "./nodes/family.ts";
import type { ServerIdentity } from "./nodes/servers-store.ts";
import { operationFamily } from "./operations/family.ts";
import type { OperationRunner } from "./operations/run.ts";
import { packageFamily } from "./packages/family.ts";
import { planFamily } from "./plans/family.ts";
import { poolFamily } from "./pools/family.ts";
import type { Loops } from "./reconcilers/driver.ts";
import { loopFamily } from "./reconcilers/family.ts";
import { registryFamily } from "./registry/family.ts";
import { statusFamily } from "./status/family.ts";
import type { HealthOptions } from "./status/routes.ts";
import { tenantFamily } from "./tenants/family.ts";
import { tokenFamily } from "./tokens/family.ts";
import { usageFamily } from "./usage/family.ts";
import { volumeFamily } from "./volumes/family.ts";
import type { WebhookTimes } from "./webhooks/deliver.ts";
import { webhookFamily } from "./webhooks/family.ts";

export interface FamilyParts {
  readonly settings: ServerSettings;
  readonly services: MachineServices & Pick<IngressServices, "access" | "apps" | "idle">;
  readonly keys: KeyCache;
  readonly health: HealthOptions;
  readonly server: ServerIdentity;
  readonly loops: Loops;
  readonly operations: OperationRunner;
  /** Replace the times of webhooks, and the resolver of their hosts. For tests. */
  readonly webhookTimes: WebhookTimes | undefined;
  readonly resolve: Resolve | undefined;
}

export function familiesOf({ settings, services, ...parts }: FamilyParts) {
  const { context, fleet } = services;
  return [
    statusFamily(context, parts.health),
    loopFamily(context, parts.loops, parts.server),
    usageFamily(context),
    planFamily(context),
    tenantFamily(context),
    billingFamily({ context, graceHours: settings.invoiceGraceHours }),
    accountFamily(context),
    apiKeyFamily(context, parts.keys),
    consoleFamily(context, parts.keys),
    auditFamily(context, settings.auditDays),
    operationFamily(context, parts.operations),
    eventFamily(context),
    webhookFamily(services, { ...settings, resolve: parts.resolve, times: parts.webhookTimes }),
    registryFamily(services),
    machineFamily(services),
    branchFamily(services),
    leaseFamily(services),
    packageFamily(services),
    moveFamily(services),
    appFamily(services),
    ingressFamily(services),
    tokenFamily(context, fleet),
    volumeFamily(context),
    poolFamily(services),
    nodeFamily(services, parts.server, settings.databaseUrl),
    imageFamily(services),
  ] as const;
}

type Named<Each> = Each extends { readonly handlers: infer Given } ? keyof Given : never;
/** Endpoints without a handler. */
type Missing = Exclude<keyof Handlers, Named<ReturnType<typeof familiesOf>[number]>>;

/** The handlers of all families. Throws if two have the same endpoint. */
export function handlersOf(families: readonly Family[]): AnyHandlers {
  // Does not compile while an endpoint is missing: the compiler names it here.
  const all: AnyHandlers = {} satisfies Record<Missing, never>;
  const owners = new Map<string, string>();
  for (const { name, handlers } of families)
    for (const [endpoint, handler] of Object.entries(handlers ?? {})) {
      const other = owners.get(endpoint);
      if (other !== undefined) throw new Error(`${endpoint} has a handler in ${other} and in ${name}`);
      owners.set(endpoint, name);
      // Each handler was checked against the contract; the pipeline calls them all the same way.
      Object.assign(all, { [endpoint]: handler });
    }
  return all;
}
