/**
 * Calendar months in UTC, and the status of their invoices. Pure.
 */
import type { InvoiceStatus } from "@flotilla/contract/billing";
import { Refusal } from "@flotilla/contract/errors";
import { monthUpTo, type Period } from "../usage/usage.ts";

/** Instants in epoch milliseconds; `id` such as `2026-07`. */
export interface Month extends Period {
  readonly id: string;
}

const HOUR_MS = 3_600_000;

/** The month that contains the instant. */
export function monthAt(ms: number): Month {
  const { from } = monthUpTo(ms);
  const date = new Date(from);
  const to = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
  return { id: new Date(from).toISOString().slice(0, 7), from, to };
}

export const monthAfter = ({ to }: Month): Month => monthAt(to);

/** Throws a Refusal for text that names no month, such as 2026-13. */
export function parseMonth(id: string): Month {
  if (!/^[12]\d{3}-(0[1-9]|1[0-2])$/.test(id))
    throw new Refusal(
      "not_found",
      "no such invoice: its id is a month such as 2026-07; GET /v1/billing/invoices lists them",
      { resource: { kind: "invoice", id }, call: "GET /v1/billing/invoices" },
    );
  return monthAt(Date.parse(`${id}-01T00:00:00Z`));
}

/** The months from the tenant's creation to the current one. */
export function monthsOf(createdAt: number, now: number): readonly Month[] {
  const months: Month[] = [];
  for (let month = monthAt(createdAt); month.from <= now; month = monthAfter(month)) months.push(month);
  return months;
}

/** When the grace period of a month ends. */
export const finalFrom = (month: Month, graceHours: number): number => month.to + graceHours * HOUR_MS;

/** The status of an invoice that was not final at the instant. */
export const statusAt = (month: Month, now: number): InvoiceStatus => (now < month.to ? "draft" : "grace");
