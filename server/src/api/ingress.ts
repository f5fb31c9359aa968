/**
 * Requests for machines rather than the API: recognized before anything else is checked, by their host or the start of
 * their path. The room ingress/ implements it.
 */
import type { IncomingMessage } from "node:http";
import type { Right } from "../auth/access-watch.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import type { TenantRate } from "../fairness/admission.ts";
import type { Outgoing, RawRequest } from "../http/answer.ts";

export interface IngressRequest {
  readonly raw: RawRequest;
  /** Aborted when the caller has disconnected. */
  readonly signal: AbortSignal;
  /** The key that a bearer token is. Throws the refusals of an unknown, expired or suspended key. */
  readonly authenticate: (bearer: string) => Promise<KnownKey>;
  /** Charges the address for a query, before it is made; the function that it gives refunds a caller with access. Rejects with a Refusal. */
  readonly pay: () => Promise<() => void>;
  /** Precedes a query for the machine: until whose it is is known, the request counts for its address. */
  readonly beginForAddress: () => Promise<void> | void;
  /**
   * Records the right that gave access: what the request has opened ends with it. Counts the request against the limits of
   * the machine's tenant, or of the key's. Rejects with a Refusal.
   */
  readonly admit: (right: Right, owner: TenantRate) => Promise<void>;
}

export interface Ingress {
  owns(message: Pick<IncomingMessage, "headers" | "url">): boolean;
  /** Only for a request that it owns. Throws a Refusal. */
  answer(request: IngressRequest): Promise<Outgoing>;
}
