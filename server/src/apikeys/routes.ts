/**
 * Serves /v1/apikeys.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { KeyCache } from "../auth/key-cache.ts";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import { mintKey } from "./mint.ts";
import { listKeys, revokeKey } from "./store.ts";
import { apiKeyInfo } from "./view.ts";

export function apiKeyHandlers(
  context: Context,
  keys: KeyCache,
): HandlersOf<"listApiKeys" | "createApiKey" | "deleteApiKey"> {
  return {
    listApiKeys: async ({ caller }) => ({
      status: 200,
      body: (await listKeys(context.db, caller.tenantId)).map(apiKeyInfo),
    }),
    createApiKey: async ({ caller, body }) => ({ status: 200, body: await mintKey(context, caller, body ?? {}) }),
    deleteApiKey: async ({ caller, params }) => {
      // An admin made the keys of other tenants, so it can revoke them too.
      const tenantId = caller.isAdmin ? null : caller.tenantId;
      const at = new Date(context.clock.now());
      if (!(await revokeKey(context.db, { keyId: params.id, tenantId, at })))
        throw new Refusal("not_found", `no API key ${params.id}`);
      keys.forgetKey(params.id);
      return { status: 204 };
    },
  };
}
