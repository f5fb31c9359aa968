/**
 * `flotilla tenant advance ID --to TIME`: moves the billing time of a tenant with a test clock, and prints it.
 */
import type { Call } from "../call.ts";

export interface AdvanceTenantOptions {
  readonly to: string;
}

export async function run(call: Call, [id = ""]: readonly string[], { to }: AdvanceTenantOptions): Promise<void> {
  const tenant = await call.flotilla().advanceTenant(id, { to });
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.testClock ?? "");
}
