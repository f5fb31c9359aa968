/**
 * `flotilla webhook show ID`: one webhook, without its secret.
 */
import type { Call } from "../call.ts";
import { clean } from "../table.ts";
import { stateOf } from "./ls.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  const webhook = await call.flotilla().getWebhook(id);
  if (call.output.isJson) return call.output.json(webhook);
  call.output.table(
    ["FIELD", "VALUE"],
    [
      ["id", webhook.id],
      ["state", stateOf(webhook)],
      ...(webhook.disabledReason === null ? [] : [["reason", webhook.disabledReason]]),
      ["address", clean(webhook.url)],
      ["description", clean(webhook.description ?? "")],
      ["types", webhook.types?.join(" ") ?? "all"],
      ["waiting", String(webhook.pending)],
      ["failures in a row", String(webhook.failures)],
      ["failing since", webhook.failingSince ?? ""],
      ["cursor", webhook.cursor ?? ""],
      ["previous secret until", webhook.previousSecretUntil ?? ""],
      ["created", webhook.createdAt],
    ],
  );
}
