/**
 * `flotilla webhook test ID`: sends a test and waits for its first attempt.
 *
 * Exit code 1: the receiver did not accept it.
 */
import type { WebhookDelivery } from "@flotilla/sdk";
import type { Call } from "../call.ts";

const ASK_AGAIN_MS = 300;
/** Longer than the server waits for a receiver. */
const WAIT_MS = 30_000;

export async function run(call: Call, [id = ""]: readonly string[]): Promise<number> {
  const flotilla = call.flotilla();
  const queued = await flotilla.testWebhook(id);
  const { clock } = call.world;
  let delivery: WebhookDelivery | undefined;
  for (const until = clock.now() + WAIT_MS; clock.now() < until; ) {
    await clock.sleep(ASK_AGAIN_MS);
    delivery = (await flotilla.listWebhookDeliveries(id)).find((one) => one.id === queued.id);
    if (delivery !== undefined && delivery.attempts > 0) break;
  }
  const isDelivered = delivery?.status === "delivered";
  if (call.output.isJson) call.output.json(delivery ?? queued);
  else if (isDelivered) call.output.line(`${queued.id}  the receiver answered ${delivery?.lastStatus}`);
  else call.output.error(`the receiver ${delivery?.lastError ?? "was not reached yet"}; the test is tried again`, null);
  return isDelivered ? 0 : 1;
}
