/**
 * Who asks, and whether they may: the credential, the tenant's standing and the key's scope.
 */
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import { authenticateConnectToken, authenticateKey, authenticateNode, bearerOf } from "../auth/authenticate.ts";
import type { Guard } from "../auth/caller.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import { hasConnectTokenForm } from "../auth/keys.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import { forHolder } from "../db/holder.ts";
import { addressCaller } from "../fairness/semaphore.ts";
import { after, callerOf, type Exchange, type HandleParts, searchOf } from "./exchange.ts";
import { isOperation } from "./right.ts";
import type { Route } from "./route-table.ts";

/** Precedes every query for a credential: callers from one address share a rate of unknown ones, and a turn. */
export const guardOf =
  (parts: HandleParts, exchange: Exchange): Guard =>
  async (name, read) => {
    // The socket of this host, or a verified certificate.
    const isNode = exchange.isFromNodes && (exchange.peer === undefined || exchange.certificate !== null);
    if (isNode) return await read();
    const from = callerOf(parts, exchange);
    const { presence } = exchange;
    return await parts.admission.unauthenticated.ask({ from, name, presence }, async () => {
      const caller = addressCaller(from.address);
      const end = await parts.semaphore.begin(caller);
      return await forHolder(caller.name, read).finally(end);
    });
  };

/**
 * Writes the caller into the exchange. `route` undefined: a path that does not exist asks for an API key, as most do. Throws
 * or rejects with a Refusal.
 */
export function authenticate(parts: HandleParts, exchange: Exchange, route: Route | undefined): Promise<void> | void {
  const access = route?.endpoint.access;
  const guard = guardOf(parts, exchange);
  const { isUpgrade, isBridge } = route?.endpoint ?? {};
  exchange.bearer = bearerOf(exchange.message.headers.authorization);
  if (exchange.bearer === undefined && (isUpgrade || (isBridge && exchange.upgrade !== undefined)))
    exchange.bearer = searchOf(exchange.url).get("access_token") ?? undefined;
  if (access === "joinToken" || access === "nodeCredential") {
    const asking = authenticateNode(parts.nodes, exchange, access, guard);
    return asking.then((node) => void (exchange.node = node));
  }
  const keep = (key: KnownKey): void => {
    exchange.key = key;
  };
  if (isBridge && hasConnectTokenForm(exchange.bearer)) {
    const machineId = exchange.params["id"] ?? "";
    return authenticateConnectToken(parts.connectTokens, exchange.bearer, { machineId, guard }).then(keep);
  }
  const key = authenticateKey(parts, exchange.bearer, guard);
  return after(route?.endpoint.worksWithoutDatabase === true ? orLastReader(parts, exchange, key) : key, keep);
}

/** While the database does not answer, a key that has read the same endpoint before may read it again. */
async function orLastReader(
  { context, readers }: HandleParts,
  { bearer = "" }: Exchange,
  asked: KnownKey | Promise<KnownKey>,
): Promise<KnownKey> {
  try {
    const key = await asked;
    readers.note(bearer, key);
    return key;
  } catch (error) {
    const known = error instanceof DatabaseUnavailable ? readers.find(bearer, context.clock.now()) : undefined;
    if (known === undefined) throw error;
    return known;
  }
}

/**
 * Throws a Refusal for a suspended tenant, before any other check of the key. An operator's key can still do what only
 * operators may do, so that a suspension can be ended.
 */
export function checkTenant(route: Route | undefined, key: KnownKey | undefined): void {
  if (key === undefined || !key.isSuspended) return;
  const access = route?.endpoint.access;
  if (access === undefined || !isOperation(access) || !key.isAdmin)
    throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
}

/** Throws a Refusal when the key has none of the scopes that the endpoint asks for. */
export function checkScope({ endpoint: { access } }: Route, key: KnownKey | undefined): void {
  if (key === undefined || typeof access === "string") return;
  if (!access.some((scope) => grants(key.scopes, scope)))
    throw new Refusal("missing_scope", `missing scope: ${access.join(" or ")}`);
}
