/**
 * Finds the caller of a request below `/v2/`, and whether it may do what it asks for.
 *
 * Always:
 * - API keys come as a bearer, as the password of Basic, or behind a token; nodes only over the listeners for
 *   nodes, with their credential.
 * - A revoked key ends its tokens, because each request looks the key up.
 */
import { Refusal } from "@flotilla/contract/errors";
import { parseRepository } from "@flotilla/contract/reference";
import type { Right } from "../auth/access-watch.ts";
import { authenticateKey, authenticateNode, bearerOf } from "../auth/authenticate.ts";
import { hasKeyForm } from "../auth/keys.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import { guardOf, type OpenRequest } from "../http/request.ts";
import { type KeyCaller, refusalOf } from "./caller.ts";
import type { RegistryCaller, RegistryParts } from "./exchange.ts";
import { findNodeLease } from "./lease-store.ts";
import { mayNodeRead } from "./node-store.ts";
import { blobUnknown, denied, manifestUnknown, nameUnknown, OciError } from "./oci-error.ts";
import type { Action, RegistryRoute } from "./paths.ts";
import { hasTokenForm, readToken } from "./tokens.ts";

/** The API key of a request: a bearer, or the password of Basic. */
export function keyOf(header: string | undefined): string | undefined {
  const bearer = bearerOf(header);
  if (bearer !== undefined) return bearer;
  const basic = /^basic +([A-Za-z0-9+/=_-]+) *$/i.exec(header ?? "")?.[1];
  if (basic === undefined) return undefined;
  const pair = Buffer.from(basic, "base64").toString("utf8");
  const colon = pair.indexOf(":");
  const [user, password] = [pair.slice(0, Math.max(0, colon)), pair.slice(colon + 1)];
  // Some clients have one field only.
  return hasKeyForm(password) || !hasKeyForm(user) ? password : user;
}

/** The caller with an API key or a token. Throws or rejects with a Refusal of 401. */
export async function identifyKey(parts: RegistryParts, request: OpenRequest): Promise<KeyCaller> {
  const given = keyOf(request.message.headers.authorization);
  const guard = guardOf(parts, request);
  if (given === undefined || !hasTokenForm(given)) {
    const key = await authenticateKey(parts, given, guard);
    return { key, holder: `key ${key.keyId}`, scopes: null };
  }
  const token = readToken(parts, given);
  if (token === undefined) throw new Refusal("expired_key", "the token of the registry has expired; get a new one");
  const key = await parts.keys.findByHash(token.keyHash, guard);
  if (key === undefined) throw new Refusal("unknown_key", "unknown API key");
  if (key.expiresAt !== null && key.expiresAt <= parts.context.clock.now())
    throw new Refusal("expired_key", "API key has expired");
  return { key, holder: `token ${token.id}`, scopes: token.scopes };
}

/** Throws a Refusal for a suspended tenant. */
export function requireActive({ isSuspended }: KnownKey): void {
  if (isSuspended) throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
}

/** The node that calls over a listener for nodes. Throws or rejects with a Refusal. */
export async function identifyNode(parts: RegistryParts, request: OpenRequest): Promise<string> {
  const { peer, certificate, message } = request;
  const isLocal = peer === undefined;
  if (!isLocal && certificate === null) throw new Refusal("not_found", "this address serves only nodes");
  const bearer = bearerOf(message.headers.authorization);
  const way = { bearer, certificate, isLocal };
  const node = await authenticateNode(parts.nodes, way, "nodeCredential", (_, read) => read());
  request.node = node;
  if (node.nodeId === null) throw new Refusal("unknown_key", "unknown API key");
  return node.nodeId;
}

/** The right that keeps a transfer open. */
export const rightOf = ({ keyId, tenantId, expiresAt }: KnownKey): Right => ({
  ...{ what: "the transfer", keyId, tenantId, expiresAt },
  ...{ machineId: null, shareHash: null, publicAppId: null, sessionHash: null },
});

interface Asked {
  readonly repository: string;
  readonly action: Action;
}

/** Throws an OciError unless the caller may. `challenge`: where it gets a token that may. */
export function requirePermitted(caller: KeyCaller, asked: Asked, challenge: string): void {
  const refused = refusalOf(caller, asked);
  if (refused === null) return;
  if (refused !== "challenge") throw refused;
  const text = `the token is not for a ${asked.action} of ${asked.repository}; get one with that scope`;
  throw new OciError(401, "UNAUTHORIZED", text, { "www-authenticate": challenge });
}

/**
 * Throws an OciError unless the node may: it pushes to a repository, and reads all of it, under a lease; it
 * reads what a machine on it is made of.
 */
export async function requireNodePermitted(
  { context }: Pick<RegistryParts, "context">,
  nodeId: string,
  route: RegistryRoute & Asked,
): Promise<void> {
  const { repository, action } = route;
  const lease = await findNodeLease(context.db, { nodeId, repository, now: context.clock.now() });
  if (lease !== undefined && action !== "delete") return;
  if (action !== "pull") throw denied(`node ${nodeId} has no lease of ${repository}, so it may not write there`);
  if (route.kind === "readManifest" && "digest" in route.target) {
    const { digest } = route.target;
    if (await mayNodeRead(context.db, { nodeId, repository, digest })) return;
    throw manifestUnknown(repository, digest);
  }
  if (route.kind === "readBlob") {
    if (await mayNodeRead(context.db, { nodeId, repository, digest: route.digest })) return;
    throw blobUnknown(repository, route.digest);
  }
  throw nameUnknown(repository);
}

/** Whether the caller may read the repository, to mount a blob of it. */
export async function mayRead(
  { context }: Pick<RegistryParts, "context">,
  caller: RegistryCaller,
  { from, into }: { readonly from: string; readonly into: string },
): Promise<boolean> {
  const owner = parseRepository(from);
  if (owner === null) return false;
  if ("key" in caller) return refusalOf({ ...caller, scopes: null }, { repository: from, action: "pull" }) === null;
  const now = context.clock.now();
  const lease = await findNodeLease(context.db, { nodeId: caller.nodeId, repository: into, now });
  return lease !== undefined && (owner.tenantId === null || owner.tenantId === lease.tenantId);
}
