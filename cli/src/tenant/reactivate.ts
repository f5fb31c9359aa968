/**
 * `flotilla tenant reactivate ID`: ends a suspension.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  await call.flotilla().reactivateTenant(id);
  call.output.line(id);
}
