/**
 * From the credential of a request to its caller, or to the 401 that says why not.
 *
 * Always: a credential is never logged or repeated in an answer; expiry is checked on each request.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { Guard, NodeCaller } from "./caller.ts";
import type { KeyCache, KnownKey } from "./key-cache.ts";
import type { LastUsed } from "./last-used.ts";

/** How a node's call has come. */
export type NodeWay = Pick<NodeCaller, "certificate" | "isLocal">;

/** Authenticates nodes; the nodes family implements it. */
export interface NodeAuthenticator {
  /**
   * `joinToken`: accepts a join token that has not expired, or a node's credential. `nodeCredential`: only
   * the latter: of a node that joined with a key with its certificate, of a node without one over the socket
   * of this host. undefined: not known, expired, revoked, or not accepted on this way.
   */
  authenticate(bearer: string, access: "joinToken" | "nodeCredential", way: NodeWay): Promise<NodeCaller | undefined>;
}

/** Authenticates the tokens that open the connect bridge of one machine; ingress/ implements it. */
export interface ConnectTokenAuthenticator {
  /** undefined: unknown, expired, for another machine, or its key is no longer valid. */
  authenticate(token: string, machineId: string): Promise<KnownKey | undefined>;
}

/** The token of `Authorization: Bearer <token>`; undefined when there is none. */
export function bearerOf(header: string | undefined): string | undefined {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1];
}

interface KeyParts {
  readonly keys: KeyCache;
  readonly lastUsed: LastUsed;
  readonly context: Pick<Context, "clock">;
}

/** A promise only for a key that is not cached. Throws or rejects with the 401 as a Refusal. */
export function authenticateKey(
  parts: KeyParts,
  bearer: string | undefined,
  guard: Guard,
): KnownKey | Promise<KnownKey> {
  if (bearer === undefined) throw new Refusal("missing_key", "");
  const known = parts.keys.find(bearer, guard);
  return known instanceof Promise ? known.then((found) => admit(parts, found)) : admit(parts, known);
}

/** The same for the token of a session; the caller has checked which page sends it. */
export function authenticateSession(parts: KeyParts, token: string, guard: Guard): KnownKey | Promise<KnownKey> {
  const known = parts.keys.findSession(token, guard);
  return known instanceof Promise ? known.then((found) => admit(parts, found)) : admit(parts, known);
}

function admit(parts: KeyParts, known: KnownKey | undefined): KnownKey {
  if (known === undefined) throw new Refusal("unknown_key", "unknown API key");
  if (known.expiresAt !== null && known.expiresAt <= parts.context.clock.now())
    throw new Refusal("expired_key", "API key has expired");
  parts.lastUsed.note(known.keyId);
  return known;
}

export async function authenticateConnectToken(
  tokens: ConnectTokenAuthenticator,
  token: string | undefined,
  { machineId, guard }: { readonly machineId: string; readonly guard: Guard },
): Promise<KnownKey> {
  const known = await guard(null, () => tokens.authenticate(token ?? "", machineId));
  if (known === undefined)
    throw new Refusal("unknown_key", "the connect token has expired or is not of this machine; make a new one");
  return known;
}

export async function authenticateNode(
  nodes: NodeAuthenticator,
  { bearer, ...way }: NodeWay & { readonly bearer: string | undefined },
  access: "joinToken" | "nodeCredential",
  guard: Guard,
): Promise<NodeCaller> {
  if (bearer === undefined) throw new Refusal("missing_key", "");
  const caller = await guard(null, () => nodes.authenticate(bearer, access, way));
  if (caller === undefined) throw new Refusal("unknown_key", "unknown API key");
  return caller;
}
