/**
 * Serves /v1/apikeys.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { KeyCache } from "../auth/key-cache.ts";
import { makeKey } from "../auth/keys.ts";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { mintKey } from "./mint.ts";
import { revokeKey } from "./revoke.ts";
import { listKeys } from "./store.ts";
import { apiKeyInfo } from "./view.ts";

export function apiKeyHandlers(
  context: Context,
  keys: KeyCache,
): HandlersOf<"listApiKeys" | "createApiKey" | "deleteApiKey"> {
  return {
    listApiKeys: async ({ caller, query }) => {
      const named = query.tenantId ?? null;
      if (named !== null && !caller.isAdmin)
        throw new Refusal("missing_scope", "missing scope: admin; leave tenantId out to list your own tenant's keys", {
          field: "tenantId",
        });
      const found = (await listKeys(context.db, named ?? caller.tenantId)).map(apiKeyInfo);
      const kept = named === null ? {} : { tenantId: named };
      const keyOf = ({ createdAt, id }: (typeof found)[number]): string => `${createdAt} ${id}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/apikeys", keyOf, kept }) };
    },
    createApiKey: async (request) => {
      const made = { id: request.newId("key"), key: makeKey(request.secretBytes) };
      return { status: 200, body: await mintKey(context, request.caller, request.body ?? {}, made) };
    },
    deleteApiKey: async ({ caller, params, query }) => {
      const isCascading = query.cascade ?? false;
      for (const id of await revokeKey(context, caller, { keyId: params.id, isCascading })) keys.forgetKey(id);
      return { status: 204 };
    },
  };
}
