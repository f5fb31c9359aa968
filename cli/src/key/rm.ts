/**
 * `flotilla key rm ID…`: revokes API keys, at once on every server.
 *
 * Keys are named by id only, because descriptions need not differ.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().deleteApiKey(id);
    call.output.line(id);
  }
}
