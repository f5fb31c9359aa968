/**
 * `flotilla webhook rm ID…`: deletes webhooks, with their deliveries.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await call.flotilla().deleteWebhook(id);
    call.output.line(id);
  }
}
