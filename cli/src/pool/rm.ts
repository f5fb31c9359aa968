/**
 * `flotilla pool rm ID…`: deletes pools and the machines that wait in them.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().deletePool(id);
    call.output.line(id);
  }
}
