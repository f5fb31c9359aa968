/**
 * Webhooks: a tenant's events, sent to addresses of its choice by the rules of Standard Webhooks
 * (https://www.standardwebhooks.com).
 *
 * Always:
 * - Each event is delivered at least once, and the events of one machine in their order. Receivers recognise
 *   a repeated event by `webhook-id`, which is the event's id in every attempt, redelivery and replay.
 * - A secret is in the answer that made it, and in no other.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { eventPattern } from "./event-types.ts";
import {
  int32,
  nullable,
  oneOf,
  optional,
  pageQuery,
  PageQuery,
  type Static,
  text,
  timestamp,
  Type,
} from "./schema.ts";

export const DELIVERY_STATUSES = ["pending", "delivered", "failed"] as const;

export const WebhookInfo = Type.Object({
  id: Type.String(),
  url: Type.String(),
  description: nullable(Type.String()),
  types: nullable(Type.Array(Type.String(), { description: "null: events of every type" })),
  enabled: Type.Boolean(),
  disabledReason: nullable(Type.String({ description: "why the server disabled it; null: it did not" })),
  failures: int32({ description: "failed attempts since the last successful one" }),
  failingSince: nullable(timestamp()),
  pending: int32({ description: "events that wait to be delivered again, or for the first time" }),
  cursor: nullable(Type.String({ description: "of the last event that was read for it" })),
  previousSecretUntil: nullable(timestamp("until then deliveries are signed with the previous secret as well")),
  createdAt: timestamp(),
  updatedAt: timestamp(),
});
export type WebhookInfo = Static<typeof WebhookInfo>;

export const WebhookSecret = Type.Object({
  id: Type.String(),
  secret: Type.String({ description: "`whsec_` and base64; shown only here" }),
});

export const WebhookCreated = Type.Object({ ...WebhookInfo.properties, ...WebhookSecret.properties });
export type WebhookCreated = Static<typeof WebhookCreated>;

const url = text({
  minLength: 1,
  maxLength: 2048,
  examples: ["https://example.com/hook"],
  description: "https:// without a user name; http:// and private addresses only where the operator allows them",
});
const types = Type.Array(eventPattern("a type of event, or `<subject>.*` for all of a subject"), {
  minItems: 1,
  maxItems: 100,
});

export const CreateWebhookRequest = Type.Object({
  url,
  description: optional(text({ maxLength: 500 })),
  types: optional(types),
});
export type CreateWebhookRequest = Static<typeof CreateWebhookRequest>;

export const UpdateWebhookRequest = Type.Object({
  url: optional(url),
  description: optional(text({ maxLength: 500 })),
  types: optional(types),
  enabled: optional(Type.Boolean({ description: "true: deliveries continue where they ended" })),
});

export const RotateSecretRequest = Type.Object({
  keepPreviousHours: optional(
    int32({ minimum: 0, maximum: 168, description: "how long the previous secret also signs; default 24" }),
  ),
});

export const ReplayRequest = Type.Object({
  cursor: optional(
    text({ maxLength: 1024, description: "of an event; default: from the oldest event that is kept (30 days)" }),
  ),
});

export const WebhookDelivery = Type.Object({
  id: Type.String({ description: "of the event; sent as `webhook-id`" }),
  type: Type.String(),
  status: oneOf(DELIVERY_STATUSES),
  attempts: int32(),
  queuedAt: timestamp(),
  lastAttemptAt: nullable(timestamp()),
  nextAttemptAt: nullable(timestamp("null: no further attempt")),
  lastStatus: nullable(int32({ description: "the HTTP status of the last attempt; null: there was no answer" })),
  lastError: nullable(Type.String({ description: "why the last attempt failed" })),
  body: Type.String({ description: "what is sent, byte for byte" }),
});
export type WebhookDelivery = Static<typeof WebhookDelivery>;

const access = ["webhook:write"] as const;
/** What shows events of machines, or sends them somewhere else. */
const withEvents = { access, alsoNeeds: ["machine:read"] } as const;
const withBody = ["invalid_json", "invalid_request", "invalid_body"] as const;

export const webhookEndpoints = {
  listWebhooks: endpoint({
    method: "GET",
    path: "/v1/webhooks",
    family: "webhooks",
    summary: "List the tenant's webhooks",
    access,
    query: PageQuery,
    answers: { 200: json(Type.Array(WebhookInfo)) },
    errors: ["invalid_body"],
  }),
  createWebhook: endpoint({
    method: "POST",
    path: "/v1/webhooks",
    family: "webhooks",
    summary: "Create a webhook; its secret is in this answer only",
    description:
      "Receives the tenant's events from now on, as `POST` with the headers `webhook-id`, `webhook-timestamp` and " +
      "`webhook-signature`. Any 2xx accepts an event; everything else is tried again. docs/webhooks.md has the details.",
    ...withEvents,
    body: { kind: "json", schema: CreateWebhookRequest },
    answers: { 201: json(WebhookCreated) },
    errors: [...withBody, "quota_exceeded"],
  }),
  getWebhook: endpoint({
    method: "GET",
    path: "/v1/webhooks/{id}",
    family: "webhooks",
    summary: "Read one webhook",
    access,
    answers: { 200: json(WebhookInfo) },
    errors: ["not_found"],
  }),
  updateWebhook: endpoint({
    method: "PATCH",
    path: "/v1/webhooks/{id}",
    family: "webhooks",
    summary: "Change a webhook, or enable it again",
    description: "Omitted fields keep their value; null clears description and types.",
    ...withEvents,
    body: { kind: "json", schema: UpdateWebhookRequest },
    answers: { 200: json(WebhookInfo) },
    errors: [...withBody, "not_found"],
  }),
  deleteWebhook: endpoint({
    method: "DELETE",
    path: "/v1/webhooks/{id}",
    family: "webhooks",
    summary: "Delete a webhook, with its deliveries",
    access,
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
  rotateWebhookSecret: endpoint({
    method: "POST",
    path: "/v1/webhooks/{id}/secret",
    family: "webhooks",
    summary: "Give a webhook a new secret; the previous one signs as well for a time",
    access,
    body: { kind: "json", schema: RotateSecretRequest, isOptional: true },
    answers: { 200: json(WebhookSecret) },
    errors: [...withBody, "not_found"],
  }),
  testWebhook: endpoint({
    method: "POST",
    path: "/v1/webhooks/{id}/test",
    family: "webhooks",
    summary: "Send an event of type webhook.test",
    description: "The list of deliveries shows its outcome.",
    access,
    answers: { 202: json(WebhookDelivery) },
    errors: ["not_found", "conflict"],
  }),
  replayWebhook: endpoint({
    method: "POST",
    path: "/v1/webhooks/{id}/replay",
    family: "webhooks",
    summary: "Deliver all events after a cursor again",
    ...withEvents,
    body: { kind: "json", schema: ReplayRequest, isOptional: true },
    answers: { 202: json(WebhookInfo) },
    errors: [...withBody, "not_found", "conflict"],
  }),
  listWebhookDeliveries: endpoint({
    method: "GET",
    path: "/v1/webhooks/{id}/deliveries",
    family: "webhooks",
    summary: "List the deliveries of a webhook, newest first",
    description: "Those that wait, and the last 1000 that ended. 100 at once without a limit.",
    ...withEvents,
    query: Type.Object({
      ...pageQuery,
      status: Type.Optional(oneOf(DELIVERY_STATUSES)),
    }),
    answers: { 200: json(Type.Array(WebhookDelivery)) },
    errors: ["invalid_body", "not_found"],
  }),
  redeliverWebhook: endpoint({
    method: "POST",
    path: "/v1/webhooks/{id}/deliveries/{event}/redeliver",
    family: "webhooks",
    summary: "Deliver one event again, immediately",
    ...withEvents,
    answers: { 202: json(WebhookDelivery) },
    errors: ["not_found", "conflict"],
  }),
} as const;
