/**
 * The costs of an invoice by machine, API key or label. A final invoice is read as it was written; a draft is computed from its
 * intervals.
 */
import { type CostGroup, type CostRow, listCosts } from "./costs-store.ts";
import { type Billing, getInvoice } from "./invoices.ts";
import { type Month, parseMonth } from "./month.ts";
import { listFinalInvoices } from "./store.ts";

/** Throws a Refusal when the tenant has no invoice of the month. */
export async function costsOf(
  billing: Billing,
  { tenantId, id, group }: { readonly tenantId: string; readonly id: string; readonly group: CostGroup },
): Promise<{ readonly month: Month; readonly costs: readonly CostRow[] }> {
  const { clock, db } = billing.context;
  const { month, lines } = await getInvoice(billing, { tenantId, id, knownAt: null });
  const final = await listFinalInvoices(db, { tenantId, knownAt: null });
  const before = final.findLast((row) => row.month < month.id);
  const costs = await listCosts(db, {
    ...{ tenantId, month, group, now: clock.now() },
    cut: final.find((row) => row.month === month.id)?.cut ?? null,
    before: before === undefined ? null : { month: parseMonth(before.month), cut: before.cut },
    usageMonths: [...new Set(lines.map(({ usageMonth }) => usageMonth))].map(parseMonth),
  });
  return { month, costs };
}
