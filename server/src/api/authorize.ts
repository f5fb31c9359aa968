/**
 * Finds the caller, and whether it may call: the credential, the tenant's standing and the key's scope.
 */
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import { authenticateKey, authenticateNode, authenticateSession, bearerOf } from "../auth/authenticate.ts";
import { sessionTokenOf } from "../auth/session-cookie.ts";
import type { Guard } from "../auth/caller.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import { after, guardOf, searchOf } from "../http/request.ts";
import type { Exchange, HandleParts } from "./exchange.ts";
import { isOperation } from "./right.ts";
import type { Route } from "./route-table.ts";

/** A node is not counted: it came over the socket of this host, or with a verified certificate. */
function guardFor(parts: HandleParts, exchange: Exchange): Guard {
  const isNode = exchange.isFromNodes && (exchange.peer === undefined || exchange.certificate !== null);
  return isNode ? (_, read) => read() : guardOf(parts, exchange);
}

/**
 * Writes the caller into the exchange. `route` undefined: a path that does not exist asks for an API key, as
 * most do. Throws or rejects with a Refusal.
 */
export function authenticate(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<void> | void {
  const access = route?.endpoint.access;
  const guard = guardFor(parts, exchange);
  exchange.bearer = bearerOf(exchange.message.headers.authorization);
  if (exchange.bearer === undefined && route?.endpoint.isUpgrade)
    exchange.bearer = searchOf(exchange.url).get("access_token") ?? undefined;
  if (access === "joinToken" || access === "nodeCredential") {
    const { bearer, certificate } = exchange;
    const isLocal = exchange.isFromNodes && exchange.peer === undefined;
    const asking = authenticateNode(parts.nodes, { bearer, certificate, isLocal }, access, guard);
    return asking.then((node) => void (exchange.node = node));
  }
  const keep = (key: KnownKey): void => {
    exchange.key = key;
  };
  const session = sessionOf(exchange, route);
  const key =
    session === undefined ? authenticateKey(parts, exchange.bearer, guard) : authenticateSession(parts, session, guard);
  exchange.bearer ??= session;
  if (route?.endpoint.worksWithoutDatabase !== true) return after(key, keep);
  const { readers, context } = parts;
  return readers.orLast(exchange.bearer ?? "", key, () => context.clock.now()).then(keep);
}

/** The token of a browser that is signed in to the console, where no other credential was sent. */
function sessionOf({ message: { headers }, bearer }: Exchange, route: Route | undefined): string | undefined {
  if (bearer !== undefined || headers.authorization !== undefined) return undefined;
  return sessionTokenOf(headers, route?.endpoint.isUpgrade === true);
}

/**
 * Throws a Refusal for a suspended tenant, before any other check of the key. An operator's key can still do
 * what only operators may do, so that a suspension can be ended.
 */
export function checkTenant(route: Route | undefined, key: KnownKey | undefined): void {
  if (key === undefined || !key.isSuspended) return;
  const access = route?.endpoint.access;
  if (access === undefined || !isOperation(access) || !key.isAdmin)
    throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
}

/** Throws a Refusal when the key does not have the scopes that the endpoint asks for. */
export function checkScope({ endpoint: { access, alsoNeeds = [] } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || typeof access === "string") return;
  if (!access.some((scope) => grants(key.scopes, scope)))
    throw new Refusal("missing_scope", `missing scope: ${access.join(" or ")}`);
  const missing = alsoNeeds.filter((scope) => !grants(key.scopes, scope));
  if (missing.length > 0) throw new Refusal("missing_scope", `missing scope: ${missing.join(" and ")}`);
}
