/**
 * Serves /v1/plans.
 */
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { createPlan } from "./create.ts";
import { listRates } from "./rates-store.ts";
import { setRate } from "./set-rate.ts";
import { findPlan, listPlans } from "./store.ts";
import { updatePlan } from "./update.ts";
import { planInfo, rateInfo } from "./view.ts";
import { notFound } from "../missing.ts";

export function planHandlers(
  context: Context,
): HandlersOf<"listPlans" | "createPlan" | "getPlan" | "updatePlan" | "listRates" | "createRate"> {
  return {
    listPlans: async ({ query }) => {
      const found = (await listPlans(context.db, context.clock.now())).map(planInfo);
      const keyOf = (plan: (typeof found)[number]): string => `${plan.isDefault ? 0 : 1} ${plan.createdAt} ${plan.id}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/plans", keyOf }) };
    },
    createPlan: async (request) => {
      const made = await createPlan(context, request.body, request.newId("plan"));
      return { status: 201, body: planInfo(made) };
    },
    getPlan: async ({ params }) => {
      const found = await findPlan(context.db, params.id, context.clock.now());
      if (found === undefined) throw notFound("plan", params.id);
      return { status: 200, body: planInfo(found) };
    },
    updatePlan: async ({ params, body }) => ({
      status: 200,
      body: planInfo(await updatePlan(context, params.id, body)),
    }),
    listRates: async ({ params, query }) => {
      const found = (await listRates(context.db, params.id)).map(rateInfo);
      if (found.length === 0) throw notFound("plan", params.id);
      const keyOf = ({ activeFrom }: (typeof found)[number]): string => activeFrom;
      return { status: 200, ...listPage(found, query, { path: `/v1/plans/${params.id}/rates`, keyOf }) };
    },
    createRate: async (request) => {
      const { params, body } = request;
      const made = await setRate(context, params.id, { ...body, id: request.newId("rate") });
      return { status: 201, body: rateInfo(made) };
    },
  };
}
