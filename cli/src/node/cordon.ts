/**
 * `flotilla node cordon NODE…`: places no new machines on nodes. They stay cordoned, also across restarts,
 * until `uncordon`.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().cordonNode(id);
    call.output.line(id);
  }
}
