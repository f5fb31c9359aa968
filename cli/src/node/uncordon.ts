/**
 * `flotilla node uncordon NODE…`: places new machines on nodes again, and ends their maintenance. A drain is
 * not ended by it.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const { status } = await call.flotilla().uncordonNode(id);
    call.output.line(id);
    if (status === "draining" || status === "drained")
      call.output.note(`${id} is ${status}, so nothing is placed there until \`flotilla node cancel-drain ${id}\``);
  }
}
