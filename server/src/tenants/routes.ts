/**
 * Serves /v1/tenants.
 */
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { advanceTenant } from "./advance.ts";
import { changeTenant, createTenant } from "./change.ts";
import { findTenant, listTenants } from "./store.ts";
import { tenantInfo } from "./view.ts";
import { notFound } from "../missing.ts";

export function tenantHandlers(
  context: Context,
): HandlersOf<
  "listTenants" | "createTenant" | "getTenant" | "updateTenant" | "suspendTenant" | "reactivateTenant" | "advanceTenant"
> {
  const { clock } = context;
  return {
    listTenants: async ({ query }) => {
      const found = (await listTenants(context.db)).map((row) => tenantInfo(row, clock.now()));
      const keyOf = ({ createdAt, id }: (typeof found)[number]): string => `${createdAt} ${id}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/tenants", keyOf }) };
    },
    createTenant: async (request) => {
      const made = await createTenant(context, request.body, request.newId("tenant"));
      return { status: 201, body: tenantInfo(made, clock.now()) };
    },
    getTenant: async ({ params }) => {
      const row = await findTenant(context.db, params.id);
      if (row === undefined) throw notFound("tenant", params.id);
      return { status: 200, body: tenantInfo(row, clock.now()) };
    },
    updateTenant: async ({ params, body }) => {
      const change = {
        status: body.status ?? undefined,
        planId: body.planId,
        externalBillingId: body.externalBillingId,
        maxApps: body.maxApps,
        maxCpus: body.maxCpus,
        maxMemoryMb: body.maxMemoryMb,
        maxDiskGb: body.maxDiskGb,
      };
      return { status: 200, body: tenantInfo(await changeTenant(context, params.id, change), clock.now()) };
    },
    advanceTenant: async ({ params, body }) => {
      const row = await advanceTenant(context, params.id, body.to);
      return { status: 200, body: tenantInfo(row, clock.now()) };
    },
    suspendTenant: async ({ params }) => {
      await changeTenant(context, params.id, { status: "suspended" });
      return { status: 204 };
    },
    reactivateTenant: async ({ params }) => {
      await changeTenant(context, params.id, { status: "active" });
      return { status: 204 };
    },
  };
}
