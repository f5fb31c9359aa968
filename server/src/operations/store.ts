/**
 * Every statement over the rows of operations.
 *
 * Always:
 * - A worker's writes name its attempt, so a server that lost its lease changes nothing.
 * - An operation that has ended is never written again.
 * - Claims skip rows that another server is claiming.
 */
import type { ErrorCode } from "@flotilla/contract/errors";
import type { OperationKind } from "@flotilla/contract/operations";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { OperationRecord } from "../family.ts";
import { type ClaimRoom, FLEET, FLEET_KINDS } from "./shares.ts";
import type { Steps } from "./steps.ts";

const COLUMNS = sql`
  o.id, o.tenant_id AS "tenantId", o.kind, o.status, o.resource_kind AS "resourceKind", o.resource_id AS "resourceId",
  o.resource_name AS "resourceName", o.input, o.steps, o.error, o.error_code AS "errorCode",
  ms(o.created_at) AS "createdAt",
  ms(o.updated_at) AS "updatedAt",
  ms(o.deadline_at) AS "deadlineAt", o.attempt,
  o.cancel_requested_at IS NOT NULL AS "isCancelRequested"`;

/** Ended operations are shown this long. */
const OPERATION_AGE_MAX_MS = 30 * 24 * 60 * 60_000;

/**
 * Inserts an unclaimed operation, unless its tenant has `runningMax` running ones already, or the id exists.
 */
export async function insertOperation(
  db: Queryable,
  operation: OperationRecord,
  runningMax: number,
): Promise<"inserted" | "refused"> {
  const now = instantOf(operation.createdAt);
  const rows = await db.execute(sql`
    INSERT INTO operations (
      id, tenant_id, kind, status, resource_kind, resource_id, resource_name, input, steps, created_at, updated_at,
      deadline_at, attempt, leased_until)
    SELECT ${operation.id}, ${operation.tenantId}, ${operation.kind}, 'running', ${operation.resourceKind},
      ${operation.resourceId}, ${operation.resourceName}, ${JSON.stringify(operation.input)}::jsonb,
      ${JSON.stringify(operation.steps)}::jsonb, ${now}::timestamptz, ${now}::timestamptz,
      ${instantOf(operation.deadlineAt)}::timestamptz, 0, ${now}::timestamptz
    WHERE (SELECT count(*) FROM operations WHERE tenant_id = ${operation.tenantId} AND status = 'running')
      < ${runningMax}
    ON CONFLICT (id) DO NOTHING`);
  return rows === 0 ? "refused" : "inserted";
}

export async function findOperation(
  db: Queryable,
  { tenantId, id }: { readonly tenantId: string; readonly id: string },
): Promise<OperationRecord | undefined> {
  return await db.queryOne<OperationRecord>(sql`
    SELECT ${COLUMNS} FROM operations o WHERE o.id = ${id} AND o.tenant_id = ${tenantId}`);
}

/** The newest running operation of the resource. */
export async function findRunningOperation(
  db: Queryable,
  { kind, resourceId }: { readonly kind: OperationKind; readonly resourceId: string },
): Promise<OperationRecord | undefined> {
  return await db.queryOne<OperationRecord>(sql`
    SELECT ${COLUMNS} FROM operations o
    WHERE o.kind = ${kind} AND o.resource_id = ${resourceId} AND o.status = 'running'
    ORDER BY o.created_at DESC LIMIT 1`);
}

/** Whether an older operation of the same kind and resource runs. */
export async function hasOlderRunning(
  db: Queryable,
  { kind, resourceId, createdAt, id }: Pick<OperationRecord, "kind" | "resourceId" | "createdAt" | "id">,
): Promise<boolean> {
  const older = await db.queryOne(sql`
    SELECT FROM operations o
    WHERE o.kind = ${kind} AND o.resource_id = ${resourceId} AND o.status = 'running'
      AND (o.created_at, o.id) < (${instantOf(createdAt)}::timestamptz, ${id}) LIMIT 1`);
  return older !== undefined;
}

/** Newest first; after the position if there is one. */
export async function listOperations(
  db: Queryable,
  options: {
    readonly tenantId: string;
    readonly after: { readonly createdAt: number; readonly id: string } | null;
    readonly limit: number;
  },
): Promise<readonly OperationRecord[]> {
  const { tenantId, after, limit } = options;
  return await db.query<OperationRecord>(sql`
    SELECT ${COLUMNS} FROM operations o
    WHERE o.tenant_id = ${tenantId}
      AND (${after?.id ?? null}::text IS NULL
           OR (o.created_at, o.id) < (${after === null ? null : instantOf(after.createdAt)}::timestamptz,
                                      ${after?.id ?? null}::text))
    ORDER BY o.created_at DESC, o.id DESC LIMIT ${limit}`);
}

/**
 * Claims operations whose lease has expired, for `leaseMs` milliseconds, as many of each owner as there is
 * `room` for (shares.ts): first those that are the first of their owner, then the second ones. Operations of
 * other kinds than `kinds` (a newer server's) are claimed only past their deadline, in order to end them.
 */
export async function claimOperations(
  context: Context,
  options: { readonly kinds: readonly OperationKind[]; readonly room: ClaimRoom; readonly leaseMs: number },
): Promise<readonly OperationRecord[]> {
  const now = context.clock.now();
  const { all, ofOwners, ofOthers } = options.room;
  const owner = sql`CASE WHEN kind = ANY(${FLEET_KINDS}) THEN ${FLEET} ELSE tenant_id END`;
  const isDue = sql`leased_until <= ${instantOf(now)} AND (kind = ANY(${options.kinds}) OR deadline_at <= ${instantOf(now)})`;
  return await context.db.query<OperationRecord>(sql`
    WITH waiting AS (
      SELECT id, owner, leased_until, row_number() OVER (PARTITION BY owner ORDER BY leased_until, id) AS place
      FROM (SELECT id, ${owner} AS owner, leased_until FROM operations WHERE ${isDue}) d),
    first AS (
      SELECT w.id FROM waiting w
        LEFT JOIN unnest(${[...ofOwners.keys()]}::text[], ${[...ofOwners.values()]}::int[]) AS here(owner, more) USING (owner)
      WHERE w.place <= coalesce(here.more, ${ofOthers}::int) ORDER BY w.place, w.leased_until, w.id LIMIT ${all}),
    due AS (SELECT id FROM operations WHERE id IN (SELECT id FROM first) AND ${isDue} FOR UPDATE SKIP LOCKED),
    claimed AS (
      UPDATE operations SET attempt = attempt + 1, leased_until = ${instantOf(now + options.leaseMs)}
      WHERE id IN (SELECT id FROM due) RETURNING *)
    SELECT ${COLUMNS} FROM claimed o`);
}

/** Identifies the attempt that holds the lease. */
export interface LeaseToken {
  readonly id: string;
  readonly attempt: number;
}

/**
 * Renews the lease. `steps`: null when unchanged. `stale`: another server has the lease, or the operation has
 * ended. `cancelRequested`: written, and the operation is to be canceled.
 */
export async function saveProgress(
  context: Context,
  turn: LeaseToken,
  { steps, leaseMs }: { readonly steps: Steps | null; readonly leaseMs: number },
): Promise<"written" | "cancelRequested" | "stale"> {
  const now = context.clock.now();
  const row = await context.db.queryOne<{ isCancelRequested: boolean }>(sql`
    UPDATE operations SET
      leased_until = ${instantOf(now + leaseMs)},
      steps = coalesce(${steps === null ? null : JSON.stringify(steps)}::jsonb, steps),
      updated_at = CASE WHEN ${steps === null}::boolean THEN updated_at ELSE ${instantOf(now)}::timestamptz END
    WHERE id = ${turn.id} AND attempt = ${turn.attempt} AND status = 'running'
    RETURNING cancel_requested_at IS NOT NULL AS "isCancelRequested"`);
  if (row === undefined) return "stale";
  return row.isCancelRequested ? "cancelRequested" : "written";
}

/** Requests the end of a running operation. undefined: the tenant has no operation with this id. */
export function requestCancel(
  context: Context,
  { tenantId, id }: { readonly tenantId: string; readonly id: string },
): Promise<OperationRecord | undefined> {
  return context.db.queryOne<OperationRecord>(sql`
    UPDATE operations o SET
      cancel_requested_at = CASE WHEN o.status = 'running'
        THEN coalesce(o.cancel_requested_at, ${instantOf(context.clock.now())}::timestamptz) ELSE o.cancel_requested_at END
    WHERE o.id = ${id} AND o.tenant_id = ${tenantId} RETURNING ${COLUMNS}`);
}

/**
 * Requests the end of the running operations that another one has begun: their input names it as `parentId`.
 */
export async function cancelChildren(context: Context, parent: OperationRecord): Promise<void> {
  await context.db.execute(sql`
    UPDATE operations SET cancel_requested_at = coalesce(cancel_requested_at, ${instantOf(context.clock.now())}::timestamptz)
    WHERE tenant_id = ${parent.tenantId} AND status = 'running' AND input ->> 'parentId' = ${parent.id}`);
}

/** Ends an operation, finally. `error`: why it failed; `errorCode`: that of a refusal. */
export async function endOperation(
  context: Context,
  turn: LeaseToken,
  end: {
    readonly steps: Steps;
    readonly error: string | null;
    readonly errorCode: ErrorCode | null;
    readonly isCanceled: boolean;
  },
): Promise<"written" | "stale"> {
  const rows = await context.db.execute(sql`
    UPDATE operations SET
      status = ${end.isCanceled ? "canceled" : end.error === null ? "succeeded" : "failed"},
      error = ${end.isCanceled ? null : end.error}, error_code = ${end.isCanceled ? null : end.errorCode}, leased_until = NULL,
      steps = ${JSON.stringify(end.steps)}::jsonb, updated_at = ${instantOf(context.clock.now())}
    WHERE id = ${turn.id} AND attempt = ${turn.attempt} AND status = 'running'`);
  return rows === 0 ? "stale" : "written";
}

/** Releases the lease, so that another server can continue immediately. */
export async function releaseOperation(context: Context, turn: LeaseToken): Promise<void> {
  await context.db.execute(sql`
    UPDATE operations SET leased_until = ${instantOf(context.clock.now())}
    WHERE id = ${turn.id} AND attempt = ${turn.attempt} AND status = 'running'`);
}

/** Removes operations that ended more than OPERATION_AGE_MAX_MS ago. Returns how many. */
export function purgeOperations(context: Context, limit: number): Promise<number> {
  return context.db.execute(sql`
    DELETE FROM operations WHERE id IN (
      SELECT id FROM operations
      WHERE status <> 'running' AND updated_at < ${instantOf(context.clock.now() - OPERATION_AGE_MAX_MS)}
      ORDER BY updated_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}
