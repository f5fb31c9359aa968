/**
 * `flotilla webhook deliveries ID`: what waits, and what was delivered or failed, newest first.
 */
import type { WebhookDelivery } from "@flotilla/sdk";
import type { Call } from "../call.ts";

export interface DeliveriesOptions {
  readonly status?: string;
  readonly limit?: number;
}

export async function run(call: Call, [id = ""]: readonly string[], options: DeliveriesOptions): Promise<void> {
  const { status, limit } = options;
  const deliveries = await call.flotilla().listWebhookDeliveries(id, {
    query: {
      ...(limit === undefined ? {} : { limit }),
      ...(status === undefined ? {} : { status: status as WebhookDelivery["status"] }),
    },
  });
  if (call.output.isJson) return call.output.json(deliveries);
  call.output.table(
    ["EVENT", "TYPE", "STATUS", "ATTEMPTS", "LAST ATTEMPT", "NEXT ATTEMPT", "ANSWER"],
    deliveries.map((one) => [
      one.id,
      one.type,
      one.status,
      String(one.attempts),
      one.lastAttemptAt ?? "",
      one.nextAttemptAt ?? "",
      one.lastError ?? (one.lastStatus === null ? "" : String(one.lastStatus)),
    ]),
  );
}
