/**
 * Requests an operation: writes one row, which the operation loop of any server claims immediately.
 *
 * Always:
 * - Only the row is written, so an accepted operation is done even if this server dies right after its
 *   answer.
 * - A repetition under an idempotency key has the same id, and finds the operation that it began.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OperationKind } from "@flotilla/contract/operations";
import type { Context } from "../context.ts";
import type { Queryable } from "../db/database.ts";
import { plannedStep } from "./steps.ts";
import { findOperation, insertOperation } from "./store.ts";
import type { OperationRecord } from "../family.ts";

export interface OperationRequest {
  readonly id: string;
  readonly tenantId: string;
  readonly kind: OperationKind;
  readonly resource: { readonly kind: string; readonly id: string; readonly name: string | null };
  /** Input of the kind's worker; stored as JSON. */
  readonly input: object;
  /** The names of the steps that are known in advance. */
  readonly steps: readonly string[];
  readonly deadlineMs: number;
}

/** Bounds what waits for its tenant's share (shares.ts). Counted without a lock: a few more do no harm. */
const RUNNING_PER_TENANT_MAX = 100;
const RETRY_AFTER_SECONDS = 10;

/**
 * What `begin` returns, which requests an operation. If that is refused, because what the operation did or
 * what happened since does not permit another: the operation that the same request began before.
 */
export async function beginOnce(
  { db }: Pick<Context, "db">,
  { operationId: id, tenantId }: { readonly operationId: string; readonly tenantId: string },
  begin: () => Promise<OperationRecord>,
): Promise<OperationRecord> {
  try {
    return await begin();
  } catch (error) {
    const known = error instanceof Refusal ? await findOperation(db, { id, tenantId }) : undefined;
    if (known === undefined) throw error;
    return known;
  }
}

export async function beginOperation(context: Context, request: OperationRequest): Promise<OperationRecord> {
  const operation = await writeOperation(context, context.db, request);
  await context.db.notify("operations", operation.id);
  return operation;
}

/** As `beginOperation`, as a part of a transaction: the caller notifies after its end. */
export async function writeOperation(
  { clock }: Pick<Context, "clock">,
  db: Queryable,
  request: OperationRequest,
): Promise<OperationRecord> {
  const now = clock.now();
  const operation: OperationRecord = {
    id: request.id,
    tenantId: request.tenantId,
    kind: request.kind,
    status: "running",
    resourceKind: request.resource.kind,
    resourceId: request.resource.id,
    resourceName: request.resource.name,
    input: request.input,
    steps: request.steps.map(plannedStep),
    error: null,
    errorCode: null,
    createdAt: now,
    updatedAt: now,
    deadlineAt: now + request.deadlineMs,
    attempt: 0,
    isCancelRequested: false,
  };
  if ((await insertOperation(db, operation, RUNNING_PER_TENANT_MAX)) === "refused") {
    const known = await findOperation(db, request);
    if (known !== undefined) return known;
    const text = `${RUNNING_PER_TENANT_MAX} operations of the tenant are running; wait until some of them have ended`;
    throw new Refusal("rate_limited", text, { headers: { "retry-after": String(RETRY_AFTER_SECONDS) } });
  }
  return operation;
}
