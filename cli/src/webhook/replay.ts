/**
 * `flotilla webhook replay ID`: delivers all events after a cursor again.
 */
import type { Call } from "../call.ts";

export interface ReplayOptions {
  readonly from?: string;
}

export async function run(call: Call, [id = ""]: readonly string[], { from }: ReplayOptions): Promise<void> {
  const webhook = await call.flotilla().replayWebhook(id, from === undefined ? {} : { cursor: from });
  if (call.output.isJson) return call.output.json(webhook);
  call.output.line(`${webhook.id}  reads its events again`);
}
