/**
 * `flotilla machine share NAME`: makes the machine's share link and prints it, or the token where there is no
 * address.
 */
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const made = await flotilla.createShare(await findMachineId(flotilla, reference));
  if (call.output.isJson) return call.output.json(made);
  call.output.line(made.url ?? made.token);
  if (made.url === null) call.output.note("the machine publishes no port, so this token opens nothing");
  else if (call.output.isWatched) {
    call.output.note(
      `anyone with this link has access; an earlier link has ended; \`flotilla machine unshare ${reference}\` ends it`,
    );
  }
}
