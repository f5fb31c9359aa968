/**
 * `flotilla tenant create NAME`: makes a tenant and prints its id.
 */
import type { Call } from "../call.ts";

export interface CreateTenantOptions {
  readonly plan?: string;
}

export async function run(call: Call, [name = ""]: readonly string[], { plan }: CreateTenantOptions): Promise<void> {
  const tenant = await call.flotilla().createTenant({ name, ...(plan === undefined ? {} : { planId: plan }) });
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.id);
}
