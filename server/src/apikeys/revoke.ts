/**
 * Revokes an API key, and with `cascade` every key that was made with it, with one of those, and so on.
 *
 * Always: nobody revokes a key whose scopes it could not grant, so a key that only manages keys ends no operator's. A key
 * may revoke itself. One transaction: it is all revoked or nothing is; a key that is made meanwhile with one of them is
 * revoked as well, or not made.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { Caller } from "../auth/caller.ts";
import { mayGrant } from "./mint.ts";
import { lockKey, revokeKeys } from "./store.ts";

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
    if (key === undefined) throw new Refusal("not_found", `no API key ${keyId}`);
    const beyond = keyId === caller.keyId ? [] : key.scopes.filter((scope) => !mayGrant(caller, scope));
    if (beyond.length > 0) {
      const text = `missing scope: ${beyond.join(", ")}; a key is revoked by one that could have made it, or by itself`;
      throw new Refusal("missing_scope", text);
    }
    const revoked: string[] = [];
    for (;;) {
      const at = context.clock.now();
      const ids = await revokeKeys(transaction, { keyId, tenantId, at, isCascading });
      // Each look sees what was made while the one before waited for its rows.
      if (ids.length === 0) return revoked;
      revoked.push(...ids);
    }
  });
}
