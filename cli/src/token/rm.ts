/**
 * `flotilla token rm PREFIX…`: revokes join tokens.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, prefixes: readonly string[]): Promise<void> {
  for (const prefix of prefixes) {
    await call.flotilla().deleteJoinToken(prefix);
    call.output.line(prefix);
  }
}
