/**
 * From the credential of a request to its caller, or to the 401 that says why not.
 *
 * Always: a credential is never logged or repeated in an answer; expiry is judged at each request.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Clock } from "../context.ts";
import type { NodeCaller } from "../http/handler.ts";
import type { KeyCache, KnownKey } from "./key-cache.ts";
import type { LastUsed } from "./last-used.ts";

/** Knows nodes by their credentials; the nodes family implements it. */
export interface NodeAuthenticator {
  /**
   * `joinToken`: accepts a join token that may still be used, or a node's credential. `nodeCredential`: only the
   * latter. undefined: not known, used up, expired or revoked.
   */
  authenticate(bearer: string, access: "joinToken" | "nodeCredential"): Promise<NodeCaller | undefined>;
}

/** The token of `Authorization: Bearer <token>`; undefined when there is none. */
export function bearerOf(header: string | undefined): string | undefined {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1];
}

export async function authenticateKey(
  parts: { readonly keys: KeyCache; readonly lastUsed: LastUsed; readonly clock: Clock },
  bearer: string | undefined,
): Promise<KnownKey> {
  if (bearer === undefined) throw new Refusal("missing_key", "");
  const known = await parts.keys.find(bearer);
  if (known === undefined) throw new Refusal("unknown_key", "unknown API key");
  if (known.expiresAt !== null && known.expiresAt <= parts.clock.now())
    throw new Refusal("expired_key", "API key has expired");
  parts.lastUsed.note(known.keyId);
  return known;
}

export async function authenticateNode(
  nodes: NodeAuthenticator,
  bearer: string | undefined,
  access: "joinToken" | "nodeCredential",
): Promise<NodeCaller> {
  if (bearer === undefined) throw new Refusal("missing_key", "");
  const caller = await nodes.authenticate(bearer, access);
  if (caller === undefined) throw new Refusal("unknown_key", "unknown API key");
  return caller;
}
