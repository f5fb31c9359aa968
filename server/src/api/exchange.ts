/**
 * A request on its way through the steps of handle.ts, and what those steps work with.
 */
import type { Endpoint } from "@flotilla/contract/endpoint";
import type { AccessWatch } from "../auth/access-watch.ts";
import type { NodeAuthenticator } from "../auth/authenticate.ts";
import type { KeyCache } from "../auth/key-cache.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Context } from "../context.ts";
import type { AuditSink, SentCall } from "./audit-sink.ts";
import type { IdempotencyUse } from "./idempotency-use.ts";
import type { LargeJson } from "../json/large-json.ts";
import type { LastReaders } from "../auth/last-readers.ts";
import type { Find, Found } from "./router.ts";
import type { OpenRequest, RequestParts } from "../http/request.ts";

/** undefined: there is nothing to look for. */
export type FindTarget = (
  endpoint: Endpoint,
  params: Readonly<Record<string, string>>,
  tenantId: string,
) => Promise<void> | undefined;

export interface HandleParts extends RequestParts {
  readonly context: Context;
  readonly keys: KeyCache;
  readonly access: AccessWatch;
  readonly lastUsed: LastUsed;
  readonly nodes: NodeAuthenticator;
  readonly find: Find;
  readonly largeJson: LargeJson;
  /** The same for what nodes say. */
  readonly nodeJson: LargeJson;
  readonly readers: LastReaders;
  readonly idempotency: IdempotencyUse;
  /**
   * Throws a Refusal when what the path names does not exist or is not the tenant's; for requests with large
   * bodies.
   */
  readonly findTarget: FindTarget;
  readonly audit: AuditSink;
  /** Replaces PROCESSING_MS. For tests. */
  readonly processingMs?: number | undefined;
}

/** What the steps learn about a request besides what every pipeline does. */
export interface Exchange extends OpenRequest, Found {
  bearer: string | undefined;
  /** Whether its handler was called. */
  hasBegun: boolean;
  /** Its row in the audit log, from before something was sent to a machine. */
  sent: SentCall | undefined;
}
