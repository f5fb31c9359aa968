/**
 * Serves /v1/plans.
 */
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import { listPage } from "../http/list-page.ts";
import { createPlan } from "./create.ts";
import { listPlans } from "./store.ts";
import { planInfo } from "./view.ts";

export function planHandlers(context: Context): HandlersOf<"listPlans" | "createPlan"> {
  return {
    listPlans: async ({ query }) => {
      const found = (await listPlans(context.db)).map(planInfo);
      const keyOf = (plan: (typeof found)[number]): string => `${plan.isDefault ? 0 : 1} ${plan.createdAt} ${plan.id}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/plans", keyOf }) };
    },
    createPlan: async (request) => {
      const made = await createPlan(context, request.body, request.newId("plan"));
      return { status: 201, body: planInfo(made) };
    },
  };
}
