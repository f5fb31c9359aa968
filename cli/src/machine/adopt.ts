/**
 * `flotilla machine adopt CLONE`: gives a branch the name, url, ports and share link of the machine that it
 * was branched from, which is deleted, or kept under another name.
 *
 * Prints the name that the branch has now.
 */
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export interface AdoptOptions {
  readonly keepSource?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: AdoptOptions): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const adopted = await flotilla.adoptMachine(id, { source: options.keepSource === true ? "keep" : "delete" });
  if (call.output.isJson) return call.output.json(adopted);
  const { machine, source } = adopted;
  call.output.line(machine.name ?? machine.id);
  call.output.note(
    source === null ? "its source was deleted" : `its source is kept, and its name is ${source.name ?? source.id}`,
  );
}
