/**
 * Waits for the end of an operation, for the answer to the call that requested it.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { OperationRecord } from "../family.ts";
import { findOperation } from "./store.ts";

/** How often the end is looked for: after each twentieth of the time so far. */
const LOOK_MS_MIN = 10;
const LOOK_MS_MAX = 250;

/**
 * The operation when it has ended, or as it is after `maxMs`. Rejects with the reason of an aborted signal.
 */
export async function awaitEnd(
  { clock, db }: Pick<Context, "clock" | "db">,
  { id, tenantId }: Pick<OperationRecord, "id" | "tenantId">,
  { signal, maxMs = Number.POSITIVE_INFINITY }: { readonly signal: AbortSignal; readonly maxMs?: number },
): Promise<OperationRecord> {
  const deadline = clock.monotonic() + maxMs;
  for (let waitMs = LOOK_MS_MIN; ; waitMs = Math.min(LOOK_MS_MAX, waitMs * 1.05)) {
    const found = await findOperation(db, { id, tenantId });
    if (found === undefined) throw new Refusal("not_found", `operation ${id} is gone`);
    if (found.status !== "running" || clock.monotonic() >= deadline) return found;
    await clock.sleep(waitMs, signal);
    signal.throwIfAborted();
  }
}
