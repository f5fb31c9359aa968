/**
 * `flotilla tenant suspend ID`: ends its connections and stops its machines.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  await call.flotilla().suspendTenant(id);
  call.output.line(id);
}
