/**
 * Operations: long work that a user can watch. Lists are newest first.
 */
import { endpoint, json } from "./endpoint.ts";
import { nullable, oneOf, type Static, Type, timestamp } from "./schema.ts";

export const OPERATION_STATUSES = ["running", "succeeded", "failed", "canceled"] as const;

export const Operation = Type.Object({
  id: Type.String(),
  tenantId: Type.String(),
  kind: Type.String({ description: "such as `image pull`, `node drain`, `app deploy`" }),
  status: oneOf(OPERATION_STATUSES),
  resource: Type.Object({ kind: Type.String(), id: Type.String(), name: nullable(Type.String()) }),
  steps: Type.Array(
    Type.Object({
      name: Type.String(),
      status: Type.String(),
      startedAt: nullable(timestamp()),
      finishedAt: nullable(timestamp()),
      message: nullable(Type.String()),
    }),
  ),
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
    summary: "List the tenant's operations, newest first",
    access: "anyKey",
    answers: { 200: json(Type.Array(Operation)) },
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
} as const;
