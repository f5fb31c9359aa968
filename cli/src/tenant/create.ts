/**
 * `flotilla tenant create NAME`: makes a tenant and prints its id.
 */
import type { Call } from "../call.ts";
import { findPlanId } from "../find-by-name.ts";

export interface CreateTenantOptions {
  readonly plan?: string;
  readonly testClock?: boolean;
}

export async function run(call: Call, [name = ""]: readonly string[], options: CreateTenantOptions): Promise<void> {
  const { plan, testClock } = options;
  const flotilla = call.flotilla();
  const tenant = await flotilla.createTenant({
    name,
    ...(plan === undefined ? {} : { planId: await findPlanId(flotilla, plan) }),
    ...(testClock === undefined ? {} : { testClock }),
  });
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.id);
}
