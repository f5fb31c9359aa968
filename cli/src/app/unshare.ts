/**
 * `flotilla app unshare APP`: ends the app's share link immediately. Succeeds also when there is none.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [name = ""]: readonly string[]): Promise<void> {
  await call.flotilla().removeAppShare(name);
  if (call.output.isJson) call.output.json({ name });
  else call.output.line(name);
}
