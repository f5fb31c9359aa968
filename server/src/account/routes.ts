/**
 * Serves /v1/me.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import { findTenant } from "../tenants/store.ts";

export function accountHandlers(context: Context): HandlersOf<"getCaller"> {
  return {
    getCaller: async ({ caller }) => {
      const tenant = await findTenant(context.db, caller.tenantId);
      if (tenant === undefined) throw new Refusal("not_found", `no tenant ${caller.tenantId}`);
      const body = {
        subject: caller.keyId,
        scopes: [...caller.scopes],
        tenantId: tenant.id,
        tenantName: tenant.name,
        tenantStatus: tenant.status,
        registryNamespace: `tenants/${tenant.id}`,
      };
      return { status: 200, body };
    },
  };
}
