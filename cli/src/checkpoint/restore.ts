/**
 * `flotilla checkpoint restore CHECKPOINT NAME`: makes a stopped machine that has the disk of a checkpoint,
 * and prints its name.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [reference = "", name = ""]: readonly string[]): Promise<void> {
  const machine = await call.flotilla().restoreCheckpoint(reference, { name });
  if (call.output.isJson) return call.output.json(machine);
  call.output.line(machine.name ?? machine.id);
}
