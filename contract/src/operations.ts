/**
 * Operations: long work that a user can watch. Lists are newest first.
 *
 * Always:
 * - An operation ends: it has a deadline, whatever happens to the servers and nodes that work on it.
 * - Once its status is not `running`, it never changes again.
 * - Its steps say what it did, each with a message.
 */
import { endpoint, json } from "./endpoint.ts";
import { int64, nullable, oneOf, PageQuery, type Static, timestamp, Type } from "./schema.ts";

/** What an operation is about, as text. The table's CHECK has the same list. */
export const OPERATION_KINDS = [
  "app deploy",
  "app scale",
  "app promote",
  "app redeploy",
  "app rollback",
  "app destroy",
  "node drain",
  "node upgrade",
  "machine export",
  "machine branch",
  "machine checkpoint",
  "machine move",
  "image pull",
  "registry collection",
] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

export const OPERATION_STATUSES = ["running", "succeeded", "failed", "canceled"] as const;
export type OperationStatus = (typeof OPERATION_STATUSES)[number];

/** A step that had not begun when its operation ended stays `pending`. */
export const STEP_STATUSES = ["pending", "running", "succeeded", "failed"] as const;

export const OperationStep = Type.Object({
  name: Type.String(),
  status: oneOf(STEP_STATUSES),
  startedAt: nullable(timestamp()),
  finishedAt: nullable(timestamp()),
  message: nullable(Type.String({ description: "progress while it runs; afterwards its result" })),
  downtimeMs: Type.Optional(
    int64({ description: "of a move or a branch: how long the machine did not run, by its nodes' clocks" }),
  ),
  reference: Type.Optional(Type.String({ description: "of an export: the package" })),
  digest: Type.Optional(Type.String({ description: "of an export: of the manifest" })),
  sizeBytes: Type.Optional(int64({ description: "of an export: of all layers" })),
  sentBytes: Type.Optional(int64({ description: "of an export: of the layers that the registry did not have" })),
  platforms: Type.Optional(Type.Array(Type.String(), { description: "of an export" })),
});
export type OperationStep = Static<typeof OperationStep>;

export const Operation = Type.Object({
  id: Type.String(),
  tenantId: Type.String(),
  kind: oneOf(OPERATION_KINDS),
  status: oneOf(OPERATION_STATUSES),
  resource: Type.Object({ kind: Type.String(), id: Type.String(), name: nullable(Type.String()) }),
  steps: Type.Array(OperationStep),
  error: nullable(Type.String()),
  createdAt: timestamp(),
  updatedAt: timestamp(),
});
export type Operation = Static<typeof Operation>;

export const operationEndpoints = {
  listOperations: endpoint({
    method: "GET",
    path: "/v1/operations",
    family: "operations",
    summary: "List the tenant's operations of the last 30 days, newest first",
    description: "1000 at once without a limit.",
    access: "anyKey",
    query: PageQuery,
    answers: { 200: json(Type.Array(Operation)) },
    errors: ["invalid_body"],
  }),
  getOperation: endpoint({
    method: "GET",
    path: "/v1/operations/{id}",
    family: "operations",
    summary: "Read one operation",
    access: "anyKey",
    answers: { 200: json(Operation) },
    errors: ["not_found"],
  }),
  cancelOperation: endpoint({
    method: "POST",
    path: "/v1/operations/{id}/cancel",
    family: "operations",
    summary: "End an operation early; what it did is undone where that is possible",
    description:
      "Answers immediately; the operation is `canceled` within seconds. One that has ended stays as it is, and one that cannot " +
      "be undone any more succeeds.",
    access: ["admin"],
    answers: { 202: json(Operation) },
    errors: ["not_found"],
    isExtra: true,
  }),
} as const;
