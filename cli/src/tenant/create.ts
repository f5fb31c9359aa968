/**
 * `flotilla tenant create NAME`: makes a tenant and prints its id.
 */
import type { Call } from "../call.ts";

export interface CreateTenantOptions {
  readonly plan?: string;
  readonly testClock?: boolean;
}

export async function run(call: Call, [name = ""]: readonly string[], options: CreateTenantOptions): Promise<void> {
  const { plan, testClock } = options;
  const tenant = await call.flotilla().createTenant({
    name,
    ...(plan === undefined ? {} : { planId: plan }),
    ...(testClock === undefined ? {} : { testClock }),
  });
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.id);
}
