/**
 * `flotilla node revoke NODE…`: ends a node's membership. Its connections end within a second on every
 * server.
 *
 * Its machines keep running on the host, unreachable. It returns with a new join token only.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().revokeNodeCredential(id);
    call.output.line(id);
  }
}
