/**
 * Webhooks, and the deliveries to them.
 */
import type { Resolve } from "@flotilla/base/checked-request";
import { nameResolver } from "@flotilla/base/name-resolver";
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import type { Secrets } from "../secrets.ts";
import { WebhookRunner, type WebhookTimes } from "./deliver.ts";
import { webhookHandlers } from "./routes.ts";
import { WebhookTargets } from "./target.ts";
import { webhookReconciler } from "./webhooks-loop.ts";

interface WebhookOptions {
  /** Networks of the operator that webhooks may be sent to. */
  readonly webhookNetworks: readonly string[];
  readonly webhookHttp: boolean;
  /** Replace the resolver of their hosts, and the times of deliveries. For tests. */
  readonly resolve: Resolve | undefined;
  readonly times: WebhookTimes | undefined;
}

export function webhookFamily(
  { context, secrets }: { readonly context: Context; readonly secrets: Secrets },
  { webhookNetworks: networks, webhookHttp: allowsHttp, resolve = nameResolver(), times }: WebhookOptions,
) {
  const targets = new WebhookTargets({ networks, allowsHttp });
  const deliveries = new WebhookRunner({ context, secrets, targets, resolve, times });
  return {
    name: "webhooks",
    handlers: webhookHandlers({ context, secrets, targets }),
    loops: [webhookReconciler(deliveries)],
    stop: () => deliveries.stop(),
  } satisfies Family;
}
