/**
 * `flotilla usage`: what the tenant's machines used in a period, including machines that were deleted since.
 */
import type { Call } from "../call.ts";
import { usageFacts } from "./money.ts";

export interface UsageOptions {
  readonly from?: string;
  readonly to?: string;
}

export async function run(call: Call, _operands: readonly string[], { from, to }: UsageOptions): Promise<void> {
  const query = { ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) };
  const usage = await call.flotilla().getUsage({ query });
  if (call.output.isJson) return call.output.json(usage);
  call.output.facts(usageFacts(usage));
}
