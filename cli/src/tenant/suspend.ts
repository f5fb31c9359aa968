/**
 * `flotilla tenant suspend ID`: ends its connections and stops its machines.
 */
import type { Call } from "../call.ts";
import { findTenantId } from "../find-by-name.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findTenantId(flotilla, reference);
  await flotilla.suspendTenant(id);
  call.output.line(id);
}
