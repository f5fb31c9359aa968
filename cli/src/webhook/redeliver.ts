/**
 * `flotilla webhook redeliver ID EVENT`: delivers one event again.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [id = "", event = ""]: readonly string[]): Promise<void> {
  const queued = await call.flotilla().redeliverWebhook(id, event);
  if (call.output.isJson) return call.output.json(queued);
  call.output.line(`${queued.id}  ${queued.status}`);
}
