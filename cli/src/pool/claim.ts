/**
 * `flotilla pool claim ID`: takes a running machine out of a pool. When none waits, the server starts one,
 * and this waits.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  const machine = await call.flotilla().claimMachine(id);
  if (call.output.isJson) return call.output.json(machine);
  call.output.line(machine.name ?? machine.id);
}
