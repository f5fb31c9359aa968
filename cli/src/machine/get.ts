/**
 * `flotilla machine get NAME`: everything about one machine.
 *
 * Absent facts are left out.
 */
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";
import { machineFacts } from "./view.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const machine = await findMachine(call.flotilla(), reference);
  if (call.output.isJson) call.output.json(machine);
  else call.output.facts(machineFacts(machine, call.world.clock.now()));
}
