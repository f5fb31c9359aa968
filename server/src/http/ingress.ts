/**
 * Requests that are for machines and none of the API's: told apart before anything else is looked at, by the host they
 * name or by the beginning of their path. The room ingress/ implements it.
 */
import type { IncomingMessage } from "node:http";
import type { Right } from "../auth/access-watch.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import type { TenantRate } from "./admission.ts";
import type { Outgoing } from "./encode.ts";
import type { RawRequest } from "./handler.ts";

export interface IngressRequest {
  readonly raw: RawRequest;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
  /** The key of a bearer, with the refusals that a key can meet. */
  readonly authenticate: (bearer: string) => Promise<KnownKey>;
  /** To be called before a query for a stranger, who has paid for it; what it gives back repays who had a right. */
  readonly pay: () => () => void;
  /**
   * Says by which right the caller was let in: when that ends, what it has opened does. Takes the request from what the
   * machine's tenant, or the tenant of the key, may have. Throws a Refusal.
   */
  readonly admit: (right: Right, owner: TenantRate) => void;
}

export interface Ingress {
  owns(message: Pick<IncomingMessage, "headers" | "url">): boolean;
  /** Throws a Refusal. */
  answer(request: IngressRequest): Promise<Outgoing>;
}
