/**
 * `flotilla webhook ls`: the tenant's webhooks, and whether their receivers accept.
 */
import type { WebhookInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { clean } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const webhooks = await call.flotilla().listWebhooks();
  if (call.output.isJson) return call.output.json(webhooks);
  call.output.table(
    ["ID", "STATE", "WAITING", "TYPES", "ADDRESS", "DESCRIPTION"],
    webhooks.map((webhook) => [
      webhook.id,
      stateOf(webhook),
      String(webhook.pending),
      webhook.types?.join(" ") ?? "all",
      clean(webhook.url),
      clean(webhook.description ?? ""),
    ]),
  );
}

/** The state in one word. */
export function stateOf({ enabled, disabledReason, failures }: WebhookInfo): string {
  if (!enabled) return disabledReason === null ? "paused" : "disabled";
  return failures > 0 ? "failing" : "active";
}
