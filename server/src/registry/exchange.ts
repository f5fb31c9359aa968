/**
 * A request of a client of registries on its way, and what its steps work with.
 */
import type { AccessWatch } from "../auth/access-watch.ts";
import type { NodeAuthenticator } from "../auth/authenticate.ts";
import type { KeyCache } from "../auth/key-cache.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Context } from "../context.ts";
import type { OpenRequest, RequestParts } from "../http/request.ts";
import type { Secrets } from "../secrets.ts";
import type { KeyCaller } from "./caller.ts";
import type { Registry } from "./registry.ts";
import type { UploadTurns } from "./upload-turns.ts";

export interface RegistryParts extends RequestParts {
  readonly context: Context;
  readonly secrets: Secrets;
  readonly keys: KeyCache;
  readonly access: AccessWatch;
  readonly lastUsed: LastUsed;
  readonly nodes: NodeAuthenticator;
  readonly registry: Registry;
  readonly turns: UploadTurns;
  /** Where clients reach this server; null: under the name with which they call. */
  readonly publicUrl: string | null;
}

/** A node, which may do what a lease or a machine of it allows. */
export interface NodeCallerOf {
  readonly nodeId: string;
}

export type RegistryCaller = KeyCaller | NodeCallerOf;

/** A request whose caller may do what it asks for. */
export interface Permitted {
  readonly request: OpenRequest;
  readonly caller: RegistryCaller;
  readonly repository: string;
  /** Whose repository it is; null: the library. */
  readonly tenantId: string | null;
  /** Aborted when the caller has gone, or its right has ended. */
  readonly signal: AbortSignal;
}
