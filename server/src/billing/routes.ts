/**
 * Serves /v1/billing/invoices and /v1/billing/ledger.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Caller } from "../auth/caller.ts";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { parseInstant } from "../api/instant.ts";
import { listPage } from "../api/list-page.ts";
import type { CostGroup } from "./costs-store.ts";
import { costsOf } from "./costs.ts";
import { diffPlan } from "./diff.ts";
import { listHolds } from "../usage/holds-store.ts";
import { readBillingTime } from "../usage/store.ts";
import { type Billing, getInvoice, listInvoices, requireMonth } from "./invoices.ts";
import { post } from "./ledger.ts";
import { listLedger } from "./ledger-store.ts";
import { parseMonth } from "./month.ts";
import { listFinalInvoices, listIntervals } from "./store.ts";
import { costView, holdView, intervalView, invoiceInfo, invoiceView, ledgerView } from "./view.ts";

const INTERVALS_DEFAULT = 1000;
/** The label that names the app of a machine. */
const APP_LABEL = "app";

export function billingHandlers(
  billing: Billing,
): HandlersOf<
  | "listInvoices"
  | "getInvoice"
  | "listInvoiceIntervals"
  | "listInvoiceCosts"
  | "diffPlan"
  | "listLedger"
  | "postToLedger"
> {
  const { context } = billing;
  return {
    listInvoices: async ({ caller, query }) => {
      const tenantId = tenantOf(caller, query.tenantId);
      const found = (await listInvoices(billing, tenantId)).map(invoiceInfo);
      const kept = query.tenantId === undefined ? {} : { tenantId };
      const keyOf = ({ id }: (typeof found)[number]): string => id;
      return { status: 200, ...listPage(found, query, { path: "/v1/billing/invoices", keyOf, kept }) };
    },
    getInvoice: async ({ caller, params, query }) => {
      const tenantId = tenantOf(caller, query.tenantId);
      const knownAt = await instantKnown(context, tenantId, query.asOf);
      const invoice = await getInvoice(billing, { tenantId, id: params.id, knownAt });
      return { status: 200, body: invoiceView(invoice, query.tenantId !== undefined) };
    },
    listInvoiceIntervals: async ({ caller, params, query }) => {
      const tenantId = tenantOf(caller, query.tenantId);
      const now = context.clock.now();
      const at = await readBillingTime(context.db, tenantId, now);
      const month = await requireMonth(context, { tenantId, id: params.id, at });
      const usageMonth = query.month === undefined ? month : parseMonth(query.month);
      if (usageMonth.from > month.from)
        throw new Refusal(
          "invalid_body",
          `month ${usageMonth.id} is later than the invoice ${month.id}; name its own month or an earlier one`,
        );
      const final = await listFinalInvoices(context.db, { tenantId, knownAt: null });
      const found = await listIntervals(context.db, {
        ...{ tenantId, month, usageMonth, now },
        cut: final.find((row) => row.month === month.id)?.cut ?? null,
        meter: query.meter ?? null,
        after: parseCursor(query.cursor),
        limit: query.limit ?? INTERVALS_DEFAULT,
      });
      return { status: 200, body: found.map(intervalView) };
    },
    listInvoiceCosts: (request) => answerCosts(billing, request),
    diffPlan: async ({ params, query }) => ({ status: 200, body: await diffPlan(context, params.id, query) }),
    listLedger: async ({ caller, query }) => {
      const tenantId = tenantOf(caller, query.tenantId);
      const posted = (await listLedger(context.db, tenantId)).map(ledgerView);
      const balance = posted.at(-1)?.balanceMicros ?? 0;
      const holds = await listHolds(context.db, tenantId);
      const found = [...posted, ...holds.map((hold) => holdView(hold, balance))];
      const kept = query.tenantId === undefined ? {} : { tenantId };
      const places = new Map(found.map((transaction, at) => [transaction, String(at).padStart(9, "0")]));
      const keyOf = (transaction: (typeof found)[number]): string => places.get(transaction) ?? "";
      return { status: 200, ...listPage(found, query, { path: "/v1/billing/ledger", keyOf, kept }) };
    },
    postToLedger: async (request) => {
      const posted = await post(context, request.body, request.newId("posting"));
      return { status: 201, body: ledgerView(posted) };
    },
  };
}

/** The query of listInvoiceCosts. */
interface CostsRequest {
  readonly caller: Caller;
  readonly params: { readonly id: string };
  readonly query: {
    readonly by?: string;
    readonly asOf?: string;
    readonly tenantId?: string;
    readonly limit?: number;
    readonly cursor?: string;
  };
}

async function answerCosts(billing: Billing, { caller, params, query }: CostsRequest) {
  const tenantId = tenantOf(caller, query.tenantId);
  const { by = "machine" } = query;
  const knownAt = await instantKnown(billing.context, tenantId, query.asOf);
  const { month, costs } = await costsOf(billing, { tenantId, id: params.id, group: parseGroup(by), knownAt });
  const found = costs.map((row) => costView(month.id, row));
  const places = new Map(found.map((cost, at) => [cost, String(at).padStart(9, "0")]));
  const keyOf = (cost: (typeof found)[number]): string => places.get(cost) ?? "";
  const asOf = query.asOf === undefined ? {} : { asOf: query.asOf };
  const kept = { by, ...asOf, ...(query.tenantId === undefined ? {} : { tenantId }) };
  const path = `/v1/billing/invoices/${month.id}/costs`;
  return { status: 200, ...listPage(found, query, { path, keyOf, kept }) } as const;
}

/** Whose invoices are read. Throws a Refusal for another tenant's without an admin key. */
function tenantOf(caller: Caller, named: string | undefined): string {
  if (named !== undefined && named !== caller.tenantId && !caller.isAdmin)
    throw new Refusal("missing_scope", "missing scope: admin; leave tenantId out to read your own tenant's invoices", {
      field: "tenantId",
    });
  return named ?? caller.tenantId;
}

/** The contract allows only these. */
function parseGroup(by: string): CostGroup {
  if (by === "machine" || by === "key") return { by, label: "" };
  if (by === "app") return { by: "label", label: APP_LABEL };
  return { by: "label", label: by.slice("label:".length) };
}

/**
 * The instant of `?asOf=` in the tenant's billing time; null: without it. Throws a Refusal for one in the
 * future.
 */
async function instantKnown(
  { db, clock }: Context,
  tenantId: string,
  text: string | undefined,
): Promise<number | null> {
  if (text === undefined) return null;
  const at = parseInstant("asOf", text);
  if (at > (await readBillingTime(db, tenantId, clock.now())))
    throw new Refusal("invalid_request", `asOf (${new Date(at).toISOString()}) is in the future; name a past instant`, {
      field: "asOf",
    });
  return at;
}

/** The id of the last interval of the page before. */
function parseCursor(text: string | undefined): number {
  const id = Number(text ?? 0);
  if (text !== undefined && (!/^\d{1,16}$/.test(text) || !Number.isSafeInteger(id)))
    throw new Refusal(
      "invalid_body",
      "cursor is not valid; take it from the id of the last interval of the page before",
      { field: "cursor" },
    );
  return id;
}
