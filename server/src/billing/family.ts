/**
 * Invoices, the ledger and exports of costs.
 */
import type { Family } from "../family.ts";
import { invoiceReconciler } from "./invoices-loop.ts";
import type { Billing } from "./invoices.ts";
import { billingHandlers } from "./routes.ts";

export const billingFamily = (billing: Billing) =>
  ({ name: "billing", handlers: billingHandlers(billing), loops: [invoiceReconciler(billing)] }) satisfies Family;
