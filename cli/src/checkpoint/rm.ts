/**
 * `flotilla checkpoint rm CHECKPOINT…`: deletes checkpoints, by their ids or names.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, references: readonly string[]): Promise<void> {
  for (const reference of references) {
    await call.flotilla().deleteCheckpoint(reference);
    call.output.line(reference);
  }
}
