/**
 * `flotilla tenant reactivate ID`: ends a suspension.
 */
import type { Call } from "../call.ts";
import { findTenantId } from "../find-by-name.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findTenantId(flotilla, reference);
  await flotilla.reactivateTenant(id);
  call.output.line(id);
}
