/**
 * The costs of an invoice by machine, app, API key or label. A final invoice is read as it was written; a
 * draft is computed from its intervals.
 */
import { type CostGroup, type CostRow, listCosts } from "./costs-store.ts";
import { type Billing, getInvoice } from "./invoices.ts";
import { type Month, parseMonth } from "./month.ts";
import { listFinalInvoices } from "./store.ts";

/** `knownAt`: as of getInvoice. Throws a Refusal when the tenant has no invoice of the month. */
export async function costsOf(
  billing: Billing,
  query: { readonly tenantId: string; readonly id: string; readonly group: CostGroup; readonly knownAt: number | null },
): Promise<{ readonly month: Month; readonly costs: readonly CostRow[] }> {
  const { clock, db } = billing.context;
  const { tenantId, group, knownAt } = query;
  const { month, lines } = await getInvoice(billing, query);
  const final = await listFinalInvoices(db, { tenantId, knownAt });
  const before = final.findLast((row) => row.month < month.id);
  const costs = await listCosts(db, {
    ...{ tenantId, month, group, knownAt, now: clock.now() },
    cut: final.find((row) => row.month === month.id)?.cut ?? null,
    before: before === undefined ? null : { month: parseMonth(before.month), cut: before.cut },
    usageMonths: [...new Set(lines.map(({ usageMonth }) => usageMonth))].map(parseMonth),
  });
  return { month, costs };
}
