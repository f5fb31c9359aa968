/**
 * Creates an API key that grants no more than its creator has.
 *
 * Always: the plaintext exists only in what this returns; the row holds a hash.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { CreateApiKeyRequest } from "@flotilla/contract/apikeys";
import { grants, SCOPE_ALIASES, SCOPES, type Scope } from "@flotilla/contract/scopes";
import { hashKey, makeKey } from "../auth/keys.ts";
import type { Context } from "../context.ts";
import type { Caller } from "../http/handler.ts";
import { insertKey } from "./store.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
const OPERATOR_SCOPES: readonly Scope[] = ["*", "admin"];

export async function mintKey(
  context: Context,
  caller: Caller,
  request: CreateApiKeyRequest,
): Promise<{ readonly id: string; readonly key: string }> {
  const tenantId = request.tenantId ?? caller.tenantId;
  const isForeign = tenantId !== caller.tenantId;
  if (isForeign && !caller.isAdmin) throw new Refusal("missing_scope", "missing scope: admin");
  const scopes = chooseScopes(caller, request.scopes ?? undefined, isForeign);
  const id = context.ids.make("key");
  const key = makeKey(context.randomBytes);
  const now = context.clock.now();
  const days = request.expiresInDays ?? null;
  const isWritten = await insertKey(context.db, {
    id,
    tenantId,
    hash: hashKey(key),
    scopes,
    description: request.description ?? null,
    createdBy: caller.keyId,
    createdAt: new Date(now),
    expiresAt: days === null ? null : new Date(now + days * DAY_MS),
  });
  if (!isWritten) throw new Refusal("not_found", `no tenant ${tenantId}`);
  return { id, key };
}

/** The scopes of the new key, each once. A key for another tenant never reaches beyond that tenant. Pure. */
function chooseScopes(caller: Caller, asked: readonly string[] | undefined, isForeign: boolean): readonly string[] {
  if (asked === undefined) {
    return isForeign ? SCOPES.filter((scope) => !OPERATOR_SCOPES.includes(scope)) : caller.scopes;
  }
  const scopes = [...new Set(asked.map(knownScope))];
  if (scopes.length === 0)
    throw new Refusal("invalid_request", "a key without scopes can do nothing; name at least one scope");
  const missing = scopes.filter((scope) => !mayGrant(caller, scope));
  if (missing.length > 0) throw new Refusal("missing_scope", `missing scope: ${missing.join(", ")}`);
  const tooMuch = isForeign ? scopes.find((scope) => OPERATOR_SCOPES.includes(scope)) : undefined;
  if (tooMuch !== undefined)
    throw new Refusal(
      "invalid_request",
      `scope ${tooMuch} reaches all tenants, so a key for one tenant cannot have it`,
    );
  return scopes;
}

/** `admin` implies every scope but `*`; `*` implies all. */
const mayGrant = (caller: Caller, scope: Scope): boolean =>
  scope === "*" ? caller.scopes.includes("*") : grants(caller.scopes, scope);

function knownScope(name: string): Scope {
  const scope = SCOPE_ALIASES[name] ?? SCOPES.find((item) => item === name);
  if (scope === undefined)
    throw new Refusal("invalid_request", `unknown scope ${JSON.stringify(name)}; known are ${SCOPES.join(", ")}`);
  return scope;
}
