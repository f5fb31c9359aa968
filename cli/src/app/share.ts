/**
 * `flotilla app share APP`: makes the app's share link and prints it.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [name = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const made = await flotilla.createAppShare(name);
  if (call.output.isJson) return call.output.json(made);
  call.output.line(made.url ?? made.token);
  if (call.output.isWatched)
    call.output.note(
      `anyone with this link has access; an earlier link has ended; \`flotilla app unshare ${name}\` ends it`,
    );
}
