/**
 * Events of a tenant: what happened to its machines, deleted ones included, its webhooks and its budget.
 *
 * Always: a client that continues after the cursor of its last event misses none, whichever server answers.
 */
import { endpoint, jsonOrStream } from "./endpoint.ts";
import { eventPattern } from "./event-types.ts";
import { EventInfo } from "./machines.ts";
import { nullable, oneOf, ORDERS, pageQuery, type Static, Type, text } from "./schema.ts";

export const TenantEvent = Type.Object({
  ...EventInfo.properties,
  subject: Type.Object(
    { kind: Type.String({ description: "such as `machine`, the first part of the type" }), id: Type.String() },
    { description: "what the event is about; it may be deleted" },
  ),
  cursor: Type.String({ description: "pass it as `?cursor=` to read the events after this one" }),
});
export type TenantEvent = Static<typeof TenantEvent>;

/**
 * What a stream says of things that have no events: that they have changed. A reader that was not connected
 * has missed it, and reads them again.
 */
export const CHANGE_KINDS = ["operation", "app", "node", "audit"] as const;
export const FollowedChange = Type.Object({
  kind: oneOf(CHANGE_KINDS, "`audit`: calls were recorded"),
  id: nullable(Type.String({ description: "null: the whole list" })),
});
export type FollowedChange = Static<typeof FollowedChange>;

export const eventEndpoints = {
  listEvents: endpoint({
    method: "GET",
    path: "/v1/events",
    family: "events",
    summary: "List the tenant's events of the last 30 days, in the order in which they were recorded",
    description:
      "To follow events, ask again with the cursor of the answer (`x-cursor`), or ask once with `follow=true` for Server-Sent " +
      "Events: each event's `id` is its cursor and its `data` the event as JSON, and a reader that connects again with the header " +
      "`Last-Event-ID` continues after it; an `id` alone moves the reader past events that the filter left out. With `changes=true` events named " +
      '`changed` come between them, without an `id`: their `data` is `{"kind": "operation", "id": "op-…"}` when an operation of the ' +
      "tenant has begun, made a step or ended, `app` when a rollout or an instance has, `node` when a node has another state (for admins), and `audit` when calls were " +
      "recorded (with audit:read). A reader that connects again reads these things again. The last event of a stream that the server ends is an `error` with the reason. Events that " +
      "are recorded at the same time appear together and in one order for all readers. With `order=desc` the newest come first, and the cursor of an event is followed by older ones. 100 at once without a limit.",
    access: ["machine:read"],
    query: Type.Object({
      ...pageQuery,
      machine: Type.Optional(text({ maxLength: 100, description: "only those of the machine with this id" })),
      app: Type.Optional(
        text({ maxLength: 100, description: "only those of the app with this id, and of its instances" }),
      ),
      type: Type.Optional(eventPattern("only those of this type; `machine.*`: of all types of a subject")),
      order: Type.Optional(oneOf(ORDERS, "`desc`: the newest first; not with `follow`")),
      changes: Type.Optional(
        Type.Boolean({ description: "with `follow`: also say when what has no events has changed" }),
      ),
      follow: Type.Optional(
        Type.Boolean({ description: "answer with Server-Sent Events: those after the cursor, then new ones" }),
      ),
    }),
    answers: {
      200: {
        ...jsonOrStream(
          Type.Array(TenantEvent),
          "text/event-stream",
          "with `follow=true` the same as Server-Sent Events",
        ),
        headers: {
          "x-cursor":
            "the cursor of the last event, and of an answer without any that of the last one that the filters left out: " +
            "with it a client asks for what is new. With `order=desc` that of the newest event of all. Absent: there is none",
        },
      },
    },
    errors: ["invalid_body"],
  }),
} as const;
