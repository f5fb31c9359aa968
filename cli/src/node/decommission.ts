/**
 * `flotilla node decommission NODE…`: removes nodes that leave the fleet for good.
 *
 * The server refuses it while a machine has its disk there, and lists these machines.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().decommissionNode(id);
    call.output.line(id);
  }
}
