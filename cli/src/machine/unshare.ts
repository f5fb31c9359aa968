/**
 * `flotilla machine unshare NAME`: ends the machine's share link immediately. Succeeds also when there is
 * none.
 */
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  await flotilla.removeShare(id);
  if (call.output.isJson) call.output.json({ id });
  else call.output.line(reference);
}
