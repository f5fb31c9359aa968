/**
 * Creates an API key that grants no more than its creator has, and expires no later.
 *
 * Always:
 * - The plaintext exists only in the return value; the row has a hash.
 * - A tenant has at most KEYS_MAX valid keys; the statement that inserts checks it.
 * - A key that was revoked in the meantime makes no key.
 * - A repetition under an idempotency key has the same id and plaintext, and finds the key that it made.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { CreateApiKeyRequest } from "@flotilla/contract/apikeys";
import { grants, INERT_SCOPES, SCOPE_ALIASES, SCOPES, type Scope } from "@flotilla/contract/scopes";
import { hashKey } from "../auth/keys.ts";
import type { Context } from "../context.ts";
import type { Caller } from "../auth/caller.ts";
import { insertKey } from "./store.ts";
import { notFound } from "../missing.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
/** Enough for the members and programs of a large team; it stops a loop that makes keys. */
const KEYS_MAX = 1_000;
const OPERATOR_SCOPES: readonly string[] = ["*", "admin"];

export async function mintKey(
  context: Context,
  caller: Caller,
  request: CreateApiKeyRequest,
  { id, key }: { readonly id: string; readonly key: string },
): Promise<{ readonly id: string; readonly key: string }> {
  const named = request.tenantId ?? null;
  if (named !== null && !caller.isAdmin)
    throw new Refusal("missing_scope", "missing scope: admin; leave tenantId out to make a key of your own tenant", {
      field: "tenantId",
    });
  const tenantId = named ?? caller.tenantId;
  const isForeign = tenantId !== caller.tenantId;
  const scopes = chooseScopes(caller, request.scopes ?? undefined, isForeign);
  const now = context.clock.now();
  const expiresAt = chooseExpiry(caller, lifetimeMs(request), now);
  const row = {
    id,
    tenantId,
    hash: hashKey(key),
    scopes,
    description: request.description ?? null,
    createdBy: caller.keyId,
    createdAt: now,
    expiresAt,
  };
  switch (await insertKey(context.db, row, KEYS_MAX)) {
    case "inserted":
      return { id, key };
    case "noTenant":
      throw notFound("tenant", tenantId);
    case "noCreator":
      throw new Refusal("unknown_key", "the API key was revoked");
    case "overCount":
      throw new Refusal(
        "quota_exceeded",
        `the tenant has ${KEYS_MAX} API keys, which is the limit; revoke one that is unused`,
      );
  }
}

/** The requested lifetime in milliseconds; null: not named. */
function lifetimeMs({ expiresInDays, expiresInSeconds }: CreateApiKeyRequest): number | null {
  const [days, seconds] = [expiresInDays ?? null, expiresInSeconds ?? null];
  if (days !== null && seconds !== null)
    throw new Refusal("invalid_request", "expiresInDays and expiresInSeconds exclude each other; name one of them", {
      field: "expiresInDays",
    });
  return days === null ? seconds && seconds * 1000 : days * DAY_MS;
}

/** Epoch milliseconds; null: never. A key that expires makes none that outlives it. Pure. */
function chooseExpiry(caller: Caller, lifetime: number | null, now: number): number | null {
  if (lifetime === null) return caller.expiresAt;
  const requested = now + lifetime;
  if (caller.expiresAt === null || requested <= caller.expiresAt) return requested;
  const end = new Date(caller.expiresAt).toISOString();
  const text = `the new key would outlive the key that creates it, which expires at ${end}; request a shorter time, or omit it`;
  throw new Refusal("invalid_request", text);
}

/** The scopes of the new key, each once. A key for another tenant never reaches beyond that tenant. Pure. */
function chooseScopes(caller: Caller, requested: readonly string[] | undefined, isForeign: boolean): readonly string[] {
  if (requested === undefined) {
    return isForeign ? SCOPES.filter((scope) => !OPERATOR_SCOPES.includes(scope)) : caller.scopes;
  }
  const scopes = [...new Set(requested.map(knownScope))];
  if (scopes.length === 0)
    throw new Refusal("invalid_request", "a key without scopes can do nothing; name at least one scope");
  const missing = scopes.filter((scope) => !INERT_SCOPES.includes(scope) && !mayGrant(caller, scope));
  if (missing.length > 0) throw new Refusal("missing_scope", `missing scope: ${missing.join(", ")}`);
  const tooMuch = isForeign ? scopes.find((scope) => OPERATOR_SCOPES.includes(scope)) : undefined;
  if (tooMuch !== undefined)
    throw new Refusal(
      "invalid_request",
      `scope ${tooMuch} reaches all tenants, so a key for one tenant cannot have it`,
    );
  return scopes;
}

/** `admin` implies every scope but `*`; `*` implies all. Pure. */
export const mayGrant = (caller: Pick<Caller, "scopes">, scope: string): boolean =>
  scope === "*" ? caller.scopes.includes("*") : grants(caller.scopes, scope as Scope);

function knownScope(name: string): string {
  if (INERT_SCOPES.includes(name)) return name;
  const scope = Object.hasOwn(SCOPE_ALIASES, name) ? SCOPE_ALIASES[name] : SCOPES.find((item) => item === name);
  if (scope === undefined)
    throw new Refusal("invalid_request", `unknown scope ${JSON.stringify(name)}; known are ${SCOPES.join(", ")}`);
  return scope;
}
