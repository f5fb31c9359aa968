/**
 * Counts requests for machines and apps against the limits of whose they are.
 */
import type { AccessWatch, Right } from "../auth/access-watch.ts";
import type { ConnectTokenAuthenticator } from "../auth/authenticate.ts";
import type { KeyCache } from "../auth/key-cache.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Side, TenantRate } from "../fairness/admission.ts";
import { BRIDGE_SILENCE_MS_MAX } from "../fairness/bounds.ts";
import { tenantCaller, visitorsOf } from "../fairness/semaphore.ts";
import { hasBody } from "../http/body.ts";
import type { HostTable } from "../hosts/table.ts";
import { beginWork, type OpenRequest, type RequestParts } from "../http/request.ts";
import type { MachineAddresses } from "../machines/addresses.ts";
import type { AccessTable } from "./access.ts";
import type { AppCounts } from "./apps/app-counts.ts";
import type { AppForwardServices } from "./apps/forward.ts";

/** What the ways to a machine need. */
export interface IngressServices extends AppForwardServices {
  readonly appCounts: AppCounts;
  readonly addresses: Pick<MachineAddresses, "routeOf" | "routeOfDomain">;
  readonly hosts: HostTable;
  readonly access: AccessTable;
  readonly connectTokens: ConnectTokenAuthenticator;
}

export interface IngressParts extends RequestParts, IngressServices {
  readonly context: IngressServices["context"];
  readonly keys: KeyCache;
  readonly lastUsed: LastUsed;
  readonly rights: AccessWatch;
}

/**
 * Records the right that gave access: what the request has opened ends with it. Counts the request as the
 * tenant's own or as a visit, and waits for its turn. Throws a Refusal above a limit.
 */
export async function admit(
  parts: IngressParts,
  request: OpenRequest,
  { right, owner, side }: { readonly right: Right; readonly owner: TenantRate; readonly side: Side },
): Promise<void> {
  const { admission } = parts;
  const { message, presence } = request;
  presence.admit(parts.rights, right);
  request.close = admission.open(owner.tenantId, side);
  // If it has asked the database until now, it counted for its address.
  request.endWork?.();
  await beginWork(parts, request, side === "api" ? tenantCaller(owner.tenantId) : visitorsOf(owner.tenantId));
  if (hasBody(message)) admission.bodies.streamed(message, BRIDGE_SILENCE_MS_MAX);
}

/** Takes the request from the rate of the tenant. Throws or rejects with a Refusal above it. */
export const takeRequest = (
  { admission }: IngressParts,
  { headers, presence, startedAt: now }: OpenRequest,
  { owner, side }: { readonly owner: TenantRate; readonly side: Side },
): void | Promise<never> => admission.takeRequest(owner, side, { headers, now, presence });
