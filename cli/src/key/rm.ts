/**
 * `flotilla key rm ID…`: revokes API keys, immediately on every server.
 *
 * Keys are named by id only, because descriptions need not be unique.
 */
import type { Call } from "../call.ts";

export interface RemoveKeysOptions {
  readonly cascade?: boolean;
}

export async function run(call: Call, ids: readonly string[], { cascade }: RemoveKeysOptions): Promise<void> {
  for (const id of ids) {
    await call.flotilla().deleteApiKey(id, cascade === true ? { query: { cascade } } : {});
    call.output.line(id);
  }
}
