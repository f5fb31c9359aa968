/**
 * Reads all intervals of an invoice, page by page.
 */
import type { Flotilla, InvoiceInterval } from "@flotilla/sdk";

const PAGE = 1000;

/** `month`: whose usage, if it is not the invoice's own. */
export async function readIntervals(
  flotilla: Flotilla,
  { id, tenant, month }: { readonly id: string; readonly tenant: string | undefined; readonly month?: string },
): Promise<InvoiceInterval[]> {
  const intervals: InvoiceInterval[] = [];
  const filter = {
    limit: PAGE,
    ...(tenant === undefined ? {} : { tenantId: tenant }),
    ...(month === undefined ? {} : { month }),
  };
  for (let cursor: string | undefined; ; ) {
    const query = { ...filter, ...(cursor === undefined ? {} : { cursor }) };
    const page = await flotilla.listInvoiceIntervals(id, { query });
    intervals.push(...page);
    const last = page.at(-1);
    // A page may be short because its labels are long.
    if (last === undefined) return intervals;
    cursor = String(last.id);
  }
}
