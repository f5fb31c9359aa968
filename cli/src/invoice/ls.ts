/**
 * `flotilla invoice ls`: the tenant's invoices, oldest first.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { queryOfTenant } from "../find-by-name.ts";
import { numberOf } from "./number.ts";

export interface ListInvoicesOptions {
  readonly tenant?: string;
}

export async function run(call: Call, _operands: readonly string[], { tenant }: ListInvoicesOptions): Promise<void> {
  const flotilla = call.flotilla();
  const invoices = await flotilla.listInvoices({ query: await queryOfTenant(flotilla, tenant) });
  if (call.output.isJson) return call.output.json(invoices);
  call.output.table(
    ["MONTH", "STATUS", "NUMBER", "TOTAL", "FINAL"],
    invoices.map((invoice) => [
      invoice.id,
      invoice.status,
      numberOf(invoice),
      renderMicros(invoice.totalMicros),
      invoice.finalizedAt ?? `from ${invoice.finalFrom}`,
    ]),
  );
}
