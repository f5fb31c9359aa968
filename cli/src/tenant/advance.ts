/**
 * `flotilla tenant advance ID --to TIME`: moves the billing time of a tenant with a test clock, and prints
 * it.
 */
import type { Call } from "../call.ts";
import { findTenantId } from "../find-by-name.ts";

export interface AdvanceTenantOptions {
  readonly to: string;
}

export async function run(
  call: Call,
  [reference = ""]: readonly string[],
  { to }: AdvanceTenantOptions,
): Promise<void> {
  const flotilla = call.flotilla();
  const tenant = await flotilla.advanceTenant(await findTenantId(flotilla, reference), { to });
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.testClock ?? "");
}
