/**
 * `flotilla machine start NAME`: boots a machine and waits until it runs; with --detach it does not wait.
 *
 * Starting one that runs already changes nothing and is no error.
 */
import type { Call } from "../call.ts";
import { bootMachine } from "./boot.ts";
import { findMachine } from "./find.ts";

export interface StartOptions {
  readonly detach?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: StartOptions): Promise<void> {
  const flotilla = call.flotilla();
  const found = await findMachine(flotilla, reference);
  const machine = options.detach
    ? await flotilla.startMachine(found.id, { query: { detach: true } })
    : await bootMachine(call, flotilla, found);
  if (call.output.isJson) call.output.json(machine);
  else call.output.line(machine.name ?? machine.id);
}
