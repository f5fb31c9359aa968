/**
 * `flotilla node uncordon NODE…`: places new machines on nodes again, and ends their maintenance.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().uncordonNode(id);
    call.output.line(id);
  }
}
