/**
 * Converts invoices, intervals and ledger rows to API answers. Pure.
 */
import type {
  Invoice,
  InvoiceCost,
  InvoiceInfo,
  InvoiceInterval,
  InvoiceLine,
  LedgerTransaction,
} from "@flotilla/contract/billing";
import type { Static } from "@flotilla/contract/schema";
import type { Hold } from "../usage/holds-store.ts";
import type { CostRow } from "./costs-store.ts";
import type { InvoiceRecord, InvoiceSummary } from "./invoices.ts";
import type { LedgerRow } from "./ledger-store.ts";
import type { IntervalRow, LineRow } from "./store.ts";

const time = (ms: number): string => new Date(ms).toISOString();

export const invoiceInfo = (invoice: InvoiceSummary): InvoiceInfo => ({
  id: invoice.month.id,
  tenantId: invoice.tenantId,
  status: invoice.status,
  series: invoice.series,
  number: invoice.number,
  isTest: invoice.hasTestClock,
  from: time(invoice.month.from),
  to: time(invoice.month.to),
  finalFrom: time(invoice.finalFrom),
  finalizedAt: invoice.finalizedAt === null ? null : time(invoice.finalizedAt),
  totalMicros: invoice.totalMicros,
});

/** `isOther`: of another tenant than the caller's; the paths then name it. */
export const invoiceView = (invoice: InvoiceRecord, isOther: boolean): Invoice => ({
  ...invoiceInfo(invoice),
  asOf: invoice.knownAt === null ? null : time(invoice.knownAt),
  lines: invoice.lines.map((line) => lineView(invoice, line, isOther)),
  rates: invoice.rates.map((rate) => ({
    ...rate,
    activeFrom: time(rate.activeFrom),
    activeUntil: rate.activeUntil === null ? null : time(rate.activeUntil),
  })),
});

function lineView(invoice: InvoiceRecord, line: LineRow, isOther: boolean): InvoiceLine {
  const { usageMonth: month, meter, rateId, amount, micros } = line;
  const query = new URLSearchParams({ month, meter, ...(isOther ? { tenantId: invoice.tenantId } : {}) });
  return {
    kind: kindOf(invoice.month.id, month),
    ...{ month, meter, rateId, amount, micros },
    intervals: `/v1/billing/invoices/${invoice.month.id}/intervals?${query}`,
  };
}

/** `id`: of the invoice. */
export const costView = (
  id: string,
  { group, usageMonth: month, meter, rateId, amount, micros }: CostRow,
): InvoiceCost => ({
  group,
  kind: kindOf(id, month),
  ...{ month, meter, rateId, amount, micros },
});

const kindOf = (invoice: string, month: string): InvoiceLine["kind"] => (month === invoice ? "usage" : "adjustment");

export const ledgerView = (row: LedgerRow): LedgerTransaction => ({
  ...row,
  createdAt: time(row.createdAt),
  entries: [...row.entries],
});

/** Not posted, so the balance is as before it: from the budget to what is held. */
export const holdView = (
  { number, machineId, placedAt, until, micros }: Hold,
  balanceMicros: number,
): LedgerTransaction => ({
  id: `hold-${number}`,
  kind: "hold",
  invoice: null,
  note: `machine ${machineId} until ${time(until)}`,
  createdAt: time(placedAt),
  entries: [
    { account: "budget", micros: -micros },
    { account: "held", micros },
  ],
  balanceMicros,
});

export const intervalView = (row: IntervalRow): Static<typeof InvoiceInterval> => ({
  ...row,
  startedAt: time(row.startedAt),
  endedAt: row.endedAt === null ? null : time(row.endedAt),
  countedUntil: time(row.countedUntil),
  recordedAt: time(row.recordedAt),
  labels: { ...row.labels },
});
