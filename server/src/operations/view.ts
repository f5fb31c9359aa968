/**
 * Converts a row of operations to an API answer. Pure.
 */
import type { Operation } from "@flotilla/contract/operations";
import type { OperationRecord } from "../family.ts";

export function operationInfo(operation: OperationRecord): Operation {
  return {
    id: operation.id,
    tenantId: operation.tenantId,
    kind: operation.kind,
    status: operation.status,
    resource: { kind: operation.resourceKind, id: operation.resourceId, name: operation.resourceName },
    steps: operation.steps.map((step) => ({ ...step })),
    error: operation.error,
    createdAt: new Date(operation.createdAt).toISOString(),
    updatedAt: new Date(operation.updatedAt).toISOString(),
  };
}
