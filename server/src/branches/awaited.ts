/**
 * Operations whose callers wait for their end, as those of branches and checkpoints take a tenth of a second.
 *
 * Always:
 * - An operation whose caller goes away is canceled.
 * - The ids of what an operation makes follow from its own, so a step that is done twice makes nothing twice.
 */
import { createHash } from "node:crypto";
import { Refusal } from "@flotilla/contract/errors";
import { ID_PREFIXES } from "@flotilla/contract/ids";
import type { Context } from "../context.ts";
import type { OperationRecord } from "../family.ts";
import { awaitEnd } from "../operations/await-end.ts";
import { beginOnce } from "../operations/begin.ts";
import { findOperation, requestCancel } from "../operations/store.ts";

/** What a caller waits for. */
export interface Awaited {
  readonly operationId: string;
  readonly tenantId: string;
  readonly signal: AbortSignal;
}

/** The operation that `begin` requests, when it has succeeded. Throws a Refusal that says why it has not. */
export async function awaitOperation(
  context: Context,
  request: Awaited,
  begin: () => Promise<OperationRecord>,
): Promise<OperationRecord> {
  const operation = await beginOnce(context, request, begin);
  const ended = await awaitEnd(context, operation, { signal: request.signal }).catch(async (error: unknown) => {
    await requestCancel(context, operation);
    throw error;
  });
  if (ended.status === "canceled") throw new Refusal("conflict", `operation ${operation.id} was canceled`);
  if (ended.status === "failed") throw new Refusal(ended.errorCode ?? "unavailable", ended.error ?? "it failed");
  return ended;
}

/**
 * The id of the operation of a request: another one if its earlier attempts have failed, because their
 * callers went away or what refused them is over.
 */
export async function freshOperationId({ db }: Pick<Context, "db">, tenantId: string, id: string): Promise<string> {
  for (let fresh = id; ; fresh = derivedId("operation", fresh, "again")) {
    const known = await findOperation(db, { tenantId, id: fresh });
    if (known?.status !== "failed" && known?.status !== "canceled") return fresh;
  }
}

/** An id that a repetition of the operation gets again, and nothing else. */
export const derivedId = (kind: "checkpoint" | "machine" | "operation", operationId: string, what: string): string =>
  `${ID_PREFIXES[kind]}-${createHash("sha256").update(`${operationId} ${what}`).digest("hex").slice(0, 32)}`;
