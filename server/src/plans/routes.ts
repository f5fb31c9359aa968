/**
 * Serves /v1/plans.
 */
import type { KeyCache } from "../auth/key-cache.ts";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import { createPlan } from "./create.ts";
import { listPlans } from "./store.ts";
import { planInfo } from "./view.ts";

export function planHandlers(context: Context, keys: KeyCache): HandlersOf<"listPlans" | "createPlan"> {
  return {
    listPlans: async () => ({ status: 200, body: (await listPlans(context.db)).map(planInfo) }),
    createPlan: async ({ body }) => ({ status: 201, body: planInfo(await createPlan(context, keys, body)) }),
  };
}
