/**
 * `flotilla node maintenance NODE…`: an operator works on nodes. No new machine is placed there, and their
 * absence is expected, until `uncordon`. Their machines keep running; `drain` moves them away.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().maintainNode(id);
    call.output.line(id);
  }
}
