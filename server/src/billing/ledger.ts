/**
 * Posts credits and adjustments of operators to a tenant's ledger.
 */
import type { PostToLedgerRequest } from "@flotilla/contract/billing";
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { findTenant } from "../tenants/store.ts";
import { insertPosting, type LedgerRow, listLedger, readBalance } from "./ledger-store.ts";
import { notFound } from "../missing.ts";

/** `id`: of the new transaction. A repeated request with the same id returns the posted transaction. */
export async function post({ db, clock }: Context, request: PostToLedgerRequest, id: string): Promise<LedgerRow> {
  const { tenantId, micros } = request;
  const kind = request.kind ?? "credit";
  if (micros === 0)
    throw new Refusal("invalid_request", "micros is 0, which changes nothing; name an amount", { field: "micros" });
  if (micros < 0 && kind === "credit")
    throw new Refusal("invalid_request", "a credit is above 0; post an adjustment to take something back");
  const tenant = await findTenant(db, tenantId);
  if (tenant === undefined) throw notFound("tenant", tenantId);
  // Balances stay below 2^53, so that every client reads them exactly.
  if (Math.abs((await readBalance(db, tenantId)) + micros) > Number.MAX_SAFE_INTEGER / 2)
    throw new Refusal("invalid_request", `the balance of tenant ${tenantId} would be too large; post a smaller amount`);
  await insertPosting(db, {
    id,
    tenantId,
    kind,
    micros,
    note: request.note ?? "",
    at: clock.now() + tenant.clockAheadMs,
  });
  const posted = (await listLedger(db, tenantId)).find((row) => row.id === id);
  if (posted === undefined) throw new Error(`posting ${id} is not in the ledger`);
  return posted;
}
