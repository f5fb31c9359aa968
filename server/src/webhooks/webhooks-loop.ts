/**
 * Claims webhooks that have something to deliver or to read: those of a server that died once its lease has
 * run out.
 *
 * Writes webhooks through their store. It only claims, and leaves the work to deliver.ts, which
 * waits for receivers. Two servers never have the same webhook at the same time. If the server dies after the
 * claim, the lease runs out. New events wake it only by its period: they are written by many statements, and
 * a webhook's delay of up to a second costs less than a notification for each of them.
 */
import type { WebhookRunner } from "./deliver.ts";
import type { Reconciler } from "../family.ts";

export function webhookReconciler(runner: WebhookRunner): Reconciler {
  return {
    name: "webhooks",
    purpose: "delivers the events of tenants to their webhooks",
    periodMs: 1_000,
    wakeOn: ["webhooks"],
    async activate() {
      return { errors: [], counts: { claimed: await runner.claim() } };
    },
  };
}
