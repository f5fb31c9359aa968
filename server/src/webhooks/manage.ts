/**
 * The use cases of owners: make, change and rotate webhooks; test, redeliver and replay.
 *
 * Always: a change is recorded before it is answered; any server delivers it, also after a crash.
 */
import { Refusal } from "@flotilla/contract/errors";
import { WEBHOOK_PENDING_MAX, WEBHOOKS_MAX } from "@flotilla/contract/limits";
import type { Context } from "../context.ts";
import type { Secrets } from "../secrets.ts";
import { insertTest, requeue } from "./delivery-store.ts";
import {
  findSealedSecret,
  findWebhook,
  insertWebhook,
  rewind,
  rotateSecret,
  updateWebhook,
  type WebhookChange,
  type WebhookName,
} from "./store.ts";
import type { WebhookTargets } from "./target.ts";
import { type DeliveryRecord, testDelivery, type WebhookRecord } from "./view.ts";
import { notFound } from "../missing.ts";

export interface WebhookParts {
  readonly context: Context;
  readonly secrets: Pick<Secrets, "open" | "seal">;
  readonly targets: WebhookTargets;
}

const HOUR_MS = 60 * 60_000;
const PREVIOUS_HOURS_DEFAULT = 24;

/** Throws a Refusal when the tenant has no such webhook. */
export async function requireWebhook({ db }: Context, name: WebhookName): Promise<WebhookRecord> {
  return (await findWebhook(db, name)) ?? missing(name);
}

function missing({ id }: WebhookName): never {
  throw notFound("webhook", id);
}

export interface WebhookRequest extends WebhookName {
  readonly url: string;
  readonly description: string | null;
  readonly types: readonly string[] | null;
  readonly secret: string;
}

export async function createWebhook(parts: WebhookParts, request: WebhookRequest): Promise<WebhookRecord> {
  const { context, secrets, targets } = parts;
  const { id, tenantId, description, types } = request;
  const url = targets.check(request.url);
  const secret = secrets.seal(id, { secret: request.secret });
  const webhook = { id, tenantId, url, description, types, secret, now: context.clock.now() };
  if (!(await insertWebhook(context.db, webhook, WEBHOOKS_MAX))) {
    const text = `this tenant has ${WEBHOOKS_MAX} webhooks, which is the maximum; delete one, or give one more types`;
    throw new Refusal("quota_exceeded", text);
  }
  return await requireWebhook(context, { tenantId, id });
}

export async function changeWebhook(
  { context, targets }: WebhookParts,
  name: WebhookName,
  change: WebhookChange,
): Promise<WebhookRecord> {
  const url = change.url === undefined ? undefined : targets.check(change.url);
  const changed = await updateWebhook(context.db, name, { ...change, url }, context.clock.now());
  if (changed === undefined) return missing(name);
  await context.db.notify("webhooks", name.id);
  return changed;
}

/**
 * `keepPreviousHours` 0: the previous secret ends immediately. A repetition, with the secret that the webhook
 * has already, changes nothing: its receiver may still have only the previous one.
 */
export async function rotate(
  { context, secrets }: WebhookParts,
  name: WebhookName,
  {
    secret,
    keepPreviousHours = PREVIOUS_HOURS_DEFAULT,
  }: { readonly secret: string; readonly keepPreviousHours?: number },
): Promise<void> {
  const known = await findSealedSecret(context.db, name);
  if (known === undefined) return missing(name);
  if (holds(secrets, name.id, known, secret)) return;
  const now = context.clock.now();
  const previousUntil = keepPreviousHours === 0 ? null : now + keepPreviousHours * HOUR_MS;
  const sealed = secrets.seal(name.id, { secret });
  if (!(await rotateSecret(context.db, name, { secret: sealed, previousUntil, now }))) missing(name);
}

/** Whether it is this secret that is sealed. false also when another server's key sealed it. */
function holds(secrets: Pick<Secrets, "open">, id: string, sealed: Buffer, secret: string): boolean {
  try {
    return secrets.open(id, sealed)["secret"] === secret;
  } catch (error) {
    if (error instanceof Refusal) return false;
    throw error;
  }
}

export async function sendTest(context: Context, name: WebhookName, eventId: string): Promise<DeliveryRecord> {
  await requireEnabled(context, name);
  const now = context.clock.now();
  const delivery = testDelivery(name.id, eventId, now);
  const queued = await insertTest(context.db, name.id, { delivery, max: WEBHOOK_PENDING_MAX, now });
  if (queued === undefined) {
    const text = `webhook ${name.id} was not tested: ${WEBHOOK_PENDING_MAX} deliveries wait already, and show how its receiver answers`;
    throw new Refusal("conflict", text);
  }
  await context.db.notify("webhooks", name.id);
  return queued;
}

export async function redeliver(context: Context, name: WebhookName, eventId: string): Promise<DeliveryRecord> {
  await requireEnabled(context, name);
  const queued = await requeue(context.db, name, { eventId, now: context.clock.now() });
  if (queued === undefined) {
    const text = `webhook ${name.id} has no delivery ${eventId}; only the last ones that ended are kept, so use replay`;
    throw new Refusal("not_found", text);
  }
  await context.db.notify("webhooks", name.id);
  return queued;
}

export async function replay(context: Context, name: WebhookName, cursor: number | null): Promise<WebhookRecord> {
  await requireEnabled(context, name);
  const outcome = await rewind(context.db, name, { cursor, now: context.clock.now() });
  if (outcome === "missing") return missing(name);
  if (outcome === "noEvent")
    throw new Refusal(
      "not_found",
      `no event has the cursor ${cursor}: events are kept for 30 days; leave it out to replay all of them`,
    );
  if (outcome === "ahead") {
    const text = `webhook ${name.id} was not moved: it has not reached cursor ${cursor} yet, so there is nothing to replay`;
    throw new Refusal("conflict", text);
  }
  await context.db.notify("webhooks", name.id);
  return await requireWebhook(context, name);
}

async function requireEnabled(context: Context, name: WebhookName): Promise<void> {
  const { isEnabled, id } = await requireWebhook(context, name);
  if (!isEnabled) throw new Refusal("conflict", `webhook ${id} is disabled, so nothing is delivered; enable it first`);
}
