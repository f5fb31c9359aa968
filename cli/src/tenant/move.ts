/**
 * `flotilla tenant move ID PLAN`: puts a tenant on another plan. What was used until then keeps its price.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [id = "", planId = ""]: readonly string[]): Promise<void> {
  const tenant = await call.flotilla().updateTenant(id, { planId });
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.id);
}
