/**
 * Reads invoices. A final invoice is read as it was written. A draft is computed from its intervals, as known
 * now or at an earlier instant.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { findTenant, type TenantRow } from "../tenants/store.ts";
import { finalFrom, type Month, monthsOf, parseMonth, statusAt } from "./month.ts";
import {
  computeLines,
  type InvoiceRow,
  type LineRow,
  listFinalInvoices,
  listFinalLines,
  listRateSpans,
  type RateSpanRow,
} from "./store.ts";
import type { InvoiceStatus } from "@flotilla/contract/billing";
import { notFound } from "../missing.ts";

/** Instants in epoch milliseconds, money in micros. */
export interface InvoiceSummary {
  readonly tenantId: string;
  readonly month: Month;
  readonly status: InvoiceStatus;
  readonly series: string | null;
  readonly number: number | null;
  readonly finalFrom: number;
  readonly finalizedAt: number | null;
  readonly totalMicros: number;
  readonly hasTestClock: boolean;
}

export interface InvoiceRecord extends InvoiceSummary {
  readonly knownAt: number | null;
  readonly lines: readonly LineRow[];
  readonly rates: readonly RateSpanRow[];
}

export interface Billing {
  readonly context: Context;
  readonly graceHours: number;
}

/** A tenant's invoices, one for each month since it was created, oldest first. */
export async function listInvoices({ context, graceHours }: Billing, tenantId: string): Promise<InvoiceSummary[]> {
  const now = context.clock.now();
  const { createdAt, clockAheadMs, hasTestClock } = await requireTenant(context, tenantId);
  const at = now + clockAheadMs;
  const final = await listFinalInvoices(context.db, { tenantId, knownAt: null });
  const byMonth = new Map(final.map((row) => [row.month, row]));
  const listed: InvoiceSummary[] = [];
  for (const month of monthsOf(createdAt, at)) {
    const row = byMonth.get(month.id);
    const lines = row === undefined ? await computeLines(context.db, { tenantId, month, now, knownAt: null }) : [];
    listed.push(summary({ tenantId, month, row, lines, graceHours, at, hasTestClock }));
  }
  return listed;
}

/** The invoice of a month, as it was known at the instant of the tenant's billing time; null: now. */
export async function getInvoice(
  { context, graceHours }: Billing,
  { tenantId, id, knownAt }: { readonly tenantId: string; readonly id: string; readonly knownAt: number | null },
): Promise<InvoiceRecord> {
  const now = context.clock.now();
  const { clockAheadMs, hasTestClock } = await requireTenant(context, tenantId);
  const at = knownAt ?? now + clockAheadMs;
  const month = await requireMonth(context, { tenantId, id, at });
  const final = await listFinalInvoices(context.db, { tenantId, knownAt });
  const row = final.find((each) => each.month === month.id);
  const lines =
    row === undefined
      ? await computeLines(context.db, { tenantId, month, now, knownAt })
      : await listFinalLines(context.db, tenantId, month);
  const rates = await listRateSpans(context.db, tenantId, month.to);
  return { ...summary({ tenantId, month, row, lines, graceHours, at, hasTestClock }), knownAt, lines, rates };
}

/**
 * The month, if the tenant has an invoice of it at the instant of its billing time. Throws a Refusal
 * otherwise.
 */
export async function requireMonth(
  context: Context,
  { tenantId, id, at }: { readonly tenantId: string; readonly id: string; readonly at: number },
): Promise<Month> {
  const month = parseMonth(id);
  const { createdAt } = await requireTenant(context, tenantId);
  if (!monthsOf(createdAt, at).some((each) => each.id === month.id))
    throw new Refusal(
      "not_found",
      `no invoice ${month.id}: the first is of the month in which the tenant was made, the last of the current one`,
    );
  return month;
}

async function requireTenant({ db }: Context, tenantId: string): Promise<TenantRow> {
  const tenant = await findTenant(db, tenantId);
  if (tenant === undefined) throw notFound("tenant", tenantId);
  return tenant;
}

interface SummaryParts {
  readonly tenantId: string;
  readonly month: Month;
  readonly row: InvoiceRow | undefined;
  readonly lines: readonly LineRow[];
  readonly graceHours: number;
  readonly at: number;
  readonly hasTestClock: boolean;
}

function summary({ tenantId, month, row, lines, graceHours, at, hasTestClock }: SummaryParts): InvoiceSummary {
  return {
    tenantId,
    month,
    hasTestClock,
    status: row === undefined ? statusAt(month, at) : "finalized",
    series: row?.series ?? null,
    number: row?.number ?? null,
    finalFrom: finalFrom(month, graceHours),
    finalizedAt: row?.finalizedAt ?? null,
    totalMicros: row?.totalMicros ?? lines.reduce((sum, { micros }) => sum + micros, 0),
  };
}
