/**
 * Revokes an API key, and with `cascade` all keys that were made with it, directly or indirectly.
 *
 * Always:
 * - A key revokes only keys whose scopes it could grant, so a key that manages keys cannot revoke an
 *   operator's. A key can revoke itself.
 * - One transaction revokes all of them or none. A key that is made concurrently with one of them is revoked
 *   as well, or not made.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { Caller } from "../auth/caller.ts";
import { mayGrant } from "./mint.ts";
import { lockKey, revokeKeys } from "./store.ts";
import { notFound } from "../missing.ts";

/** The ids of the keys that were revoked. Throws a Refusal. */
export async function revokeKey(
  context: Context,
  caller: Caller,
  { keyId, isCascading }: { readonly keyId: string; readonly isCascading: boolean },
): Promise<readonly string[]> {
  // An admin made the keys of other tenants, so it can revoke them too.
  const tenantId = caller.isAdmin ? null : caller.tenantId;
  return context.db.transaction(async (transaction) => {
    const key = await lockKey(transaction, { keyId, tenantId });
    if (key === undefined) throw notFound("apikey", keyId);
    const beyond = keyId === caller.keyId ? [] : key.scopes.filter((scope) => !mayGrant(caller, scope));
    if (beyond.length > 0) {
      const text = `missing scope: ${beyond.join(", ")}; a key can be revoked by itself, and by a key that has all its scopes`;
      throw new Refusal("missing_scope", text);
    }
    const revoked: string[] = [];
    for (;;) {
      const at = context.clock.now();
      const ids = await revokeKeys(transaction, { keyId, tenantId, at, isCascading });
      // Each pass finds keys that were made while the one before waited for row locks.
      if (ids.length === 0) return revoked;
      revoked.push(...ids);
    }
  });
}
