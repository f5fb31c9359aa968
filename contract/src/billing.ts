/**
 * Invoices: one for each tenant and calendar month in UTC. Money is integer micros of the currency unit.
 *
 * Always: the lines of an invoice follow from recorded intervals and rates alone, so any client can compute
 * them again.
 */
import { endpoint, json } from "./endpoint.ts";
import { Labels } from "./machines.ts";
import { INVOICE_GROUP } from "./patterns.ts";
import { RATE_MICROS_MAX } from "./plans.ts";
import {
  anotherTenant,
  int64,
  nullable,
  oneOf,
  optional,
  pageQuery,
  type Static,
  TenantPageQuery,
  text,
  timestamp,
  Type,
} from "./schema.ts";

/**
 * `draft`: the month has not ended. `grace`: it has ended, and late reports still change it. `finalized`:
 * nothing changes it any more.
 */
export const INVOICE_STATUSES = ["draft", "grace", "finalized"] as const;
export type InvoiceStatus = (typeof INVOICE_STATUSES)[number];

/** What intervals measure. As the CHECK of usage_intervals. */
export const INVOICE_METERS = ["uptime", "cpu", "memory", "disk", "egress", "registry"] as const;

/**
 * Why a line is on the invoice: the month's own usage, or a change of an earlier month that became known
 * later.
 */
export const LINE_KINDS = ["usage", "adjustment"] as const;

const micros = (description?: string) =>
  Type.Integer({ format: "int64", ...(description === undefined ? {} : { description }) });

const integerText = (description: string) => Type.String({ pattern: "^-?\\d+$", description });

const invoiceFields = {
  id: Type.String({ description: "the month, such as 2026-07; unique within the tenant" }),
  tenantId: Type.String(),
  status: oneOf(INVOICE_STATUSES),
  series: nullable(
    Type.String({
      description:
        "null until the control plane is first restored from a backup, which begins a new series of numbers; then when it was restored, such as 20260723T120000Z",
    }),
  ),
  number: nullable(
    int64({
      description:
        "counts the final invoices of the series, without gaps: with it the invoice's name for good; null: not final, or a test",
    }),
  ),
  isTest: Type.Boolean({ description: "of a tenant with a test clock: a rehearsal, not to be paid" }),
  from: timestamp("the start of the month"),
  to: timestamp("the end of the month, exclusive"),
  finalFrom: timestamp("when the grace period ends; the invoice becomes final within a minute after it"),
  finalizedAt: nullable(timestamp()),
  totalMicros: micros("the sum of the lines; adjustments may make it negative"),
};

export const InvoiceInfo = Type.Object(invoiceFields);
export type InvoiceInfo = Static<typeof InvoiceInfo>;

export const InvoiceLine = Type.Object({
  kind: oneOf(LINE_KINDS),
  month: Type.String({ description: "when it was used; for an adjustment an earlier month than the invoice's" }),
  meter: oneOf(INVOICE_METERS),
  rateId: Type.String(),
  amount: integerText(
    "exact: quantity × milliseconds, where the quantity is 1, virtual processors, MiB of memory, GiB of disk or MiB in the registry; of egress the bytes; for an adjustment the difference",
  ),
  micros: micros(
    "the price of all that was used in `month` at this rate, rounded down once, less what earlier invoices have of it",
  ),
  intervals: Type.String({ description: "the path that lists the intervals it was computed from" }),
});
export type InvoiceLine = Static<typeof InvoiceLine>;

export const InvoiceRate = Type.Object({
  id: Type.String(),
  activeFrom: timestamp(),
  activeUntil: nullable(timestamp("null: not before the end of the month")),
  cpuHourMicros: int64(),
  memoryGbHourMicros: int64(),
  egressGbMicros: int64(),
  registryGbHourMicros: int64(),
});
export type InvoiceRate = Static<typeof InvoiceRate>;

export const Invoice = Type.Object({
  ...invoiceFields,
  asOf: nullable(timestamp("the instant that `?asOf=` named; null: as it is known now")),
  lines: Type.Array(InvoiceLine),
  rates: Type.Array(InvoiceRate, {
    description: "which price held for the tenant when, up to the end of the month",
  }),
});
export type Invoice = Static<typeof Invoice>;

export const InvoiceInterval = Type.Object({
  id: int64({ description: "pass it as `?cursor=` to read the intervals after this one" }),
  machineId: nullable(Type.String({ description: "the machine may be deleted; null: of the registry" })),
  bootId: nullable(Type.String({ description: "the run of the machine; null for its disk, and of the registry" })),
  meter: oneOf(INVOICE_METERS),
  quantity: int64({
    description:
      "1, virtual processors, MiB of memory, GiB of disk or MiB in the registry; of egress the bytes that were counted together, in an interval of one millisecond",
  }),
  startedAt: timestamp(),
  endedAt: nullable(timestamp("null: the invoice knows no end of it")),
  countedUntil: timestamp("the end; without one the end of the month, or the last heartbeat of its node before that"),
  recordedAt: timestamp("when the start was recorded"),
  rateId: nullable(
    Type.String({ description: "null while it has no end: `rates` of the invoice say which held when" }),
  ),
  keyId: nullable(
    Type.String({
      description:
        "the API key whose call or command started the machine, or created it if none had; of the disk the one that created it. As of the interval's start; null: not known",
    }),
  ),
  labels: Type.Unsafe<Record<string, string>>({
    ...Labels,
    description: "the machine's labels as of the interval's start",
  }),
});
export type InvoiceInterval = Static<typeof InvoiceInterval>;

export const InvoiceCost = Type.Object({
  group: nullable(
    Type.String({
      description: "the machine, the API key or the value of the label; null: it has none, or it is not known",
    }),
  ),
  kind: oneOf(LINE_KINDS),
  month: Type.String({ description: "when it was used" }),
  meter: oneOf(INVOICE_METERS),
  rateId: Type.String(),
  amount: integerText("exact, as of lines; the groups of a line add up to it"),
  micros: micros("the group's part of the line's price: the groups of a line add up to it"),
});
export type InvoiceCost = Static<typeof InvoiceCost>;

/** Why a tenant's balance changed. As the CHECK of ledger_transactions. */
export const LEDGER_KINDS = ["invoice", "credit", "adjustment"] as const;
/** As the CHECK of ledger_entries. */
export const LEDGER_ACCOUNTS = ["balance", "usage", "adjustment", "credit"] as const;
/**
 * What a machine may still cost until it is checked again is held of its tenant's budget: from `budget` to
 * `held`. Not posted yet.
 */
const HOLD_KIND = "hold";
const HOLD_ACCOUNTS = ["budget", "held"] as const;
/** Ten million units of the currency in one posting. */
export const POSTING_MICROS_MAX = 10_000_000_000_000;

export const LedgerTransaction = Type.Object({
  id: Type.String(),
  kind: oneOf([...LEDGER_KINDS, HOLD_KIND]),
  invoice: nullable(Type.String({ description: "of an invoice: its month" })),
  note: Type.String(),
  createdAt: timestamp(),
  entries: Type.Array(Type.Object({ account: oneOf([...LEDGER_ACCOUNTS, ...HOLD_ACCOUNTS]), micros: micros() }), {
    description: "the sum is 0; `balance` is what the tenant has, or owes when it is negative",
  }),
  balanceMicros: micros("the tenant's balance after it"),
});
export type LedgerTransaction = Static<typeof LedgerTransaction>;

export const PostToLedgerRequest = Type.Object({
  tenantId: text({ minLength: 1, maxLength: 64 }),
  micros: Type.Integer({
    format: "int64",
    minimum: -POSTING_MICROS_MAX,
    maximum: POSTING_MICROS_MAX,
    examples: [1_000_000],
    description: "what is added to the tenant's balance; below 0 only for an adjustment",
  }),
  kind: optional(oneOf(["credit", "adjustment"], "default: credit")),
  note: optional(text({ maxLength: 500, description: "for people" })),
});
export type PostToLedgerRequest = Static<typeof PostToLedgerRequest>;

export const PlanDiff = Type.Object({
  planId: Type.String(),
  month: Type.String(),
  cpuHourMicros: int64(),
  memoryGbHourMicros: int64(),
  egressGbMicros: int64(),
  registryGbHourMicros: int64(),
  tenants: Type.Array(
    Type.Object({
      tenantId: Type.String(),
      micros: nullable(
        int64({ description: "what its usage under the plan costs in the month; null, also below: more than 2^53" }),
      ),
      plannedMicros: nullable(
        int64({ description: "what the same usage costs at the given prices, rounded down once for each meter" }),
      ),
      differenceMicros: nullable(micros()),
    }),
  ),
});
export type PlanDiff = Static<typeof PlanDiff>;

const price = (description: string) => Type.Optional(int64({ maximum: RATE_MICROS_MAX, description }));

const asOf = Type.Optional(
  text({
    maxLength: 64,
    description: "RFC 3339, in the past: what was known then. What was in use then counts up to then",
  }),
);

export const billingEndpoints = {
  listInvoices: endpoint({
    method: "GET",
    path: "/v1/billing/invoices",
    family: "billing",
    summary: "List the tenant's invoices, one for each month since it was made",
    access: ["billing:read"],
    query: TenantPageQuery,
    answers: { 200: json(Type.Array(InvoiceInfo)) },
    errors: ["conflict", "invalid_body", "not_found"],
    isExtra: true,
  }),
  getInvoice: endpoint({
    method: "GET",
    path: "/v1/billing/invoices/{id}",
    family: "billing",
    summary: "Read the invoice of a month, with its lines",
    access: ["billing:read"],
    query: Type.Object({ tenantId: anotherTenant, asOf }),
    answers: { 200: json(Invoice) },
    errors: ["conflict", "not_found", "invalid_request", "invalid_body"],
    isExtra: true,
  }),
  listInvoiceIntervals: endpoint({
    method: "GET",
    path: "/v1/billing/invoices/{id}/intervals",
    family: "billing",
    summary: "List the intervals that an invoice was computed from, in the order in which they were recorded",
    description:
      "1000 at once without a limit, fewer if their labels are long: the page after the last interval is empty. A final invoice lists them as it knew them; the sum of quantity × milliseconds is exact.",
    access: ["billing:read"],
    query: Type.Object({
      ...pageQuery,
      tenantId: anotherTenant,
      month: Type.Optional(
        text({ maxLength: 16, description: "what the invoice knew of an earlier month; default: its own" }),
      ),
      meter: Type.Optional(oneOf(INVOICE_METERS)),
    }),
    answers: { 200: json(Type.Array(InvoiceInterval)) },
    errors: ["not_found", "invalid_body"],
    isExtra: true,
  }),
  listInvoiceCosts: endpoint({
    method: "GET",
    path: "/v1/billing/invoices/{id}/costs",
    family: "billing",
    summary: "Divide the lines of an invoice over machines, API keys or the values of a label",
    description:
      "The price of a line is rounded down once. In the order of their names its groups get the differences of the rounded running sums, so amounts and prices of the groups add up to the line. Labels and keys are those of the start of each run.",
    access: ["billing:read"],
    query: Type.Object({
      ...pageQuery,
      tenantId: anotherTenant,
      asOf,
      by: Type.Optional(
        Type.String({
          maxLength: 80,
          pattern: INVOICE_GROUP,
          description:
            "`machine` (default), `app` (the label `app`), `key`, or `label:` with the name of a label, such as `label:team`",
        }),
      ),
    }),
    answers: { 200: json(Type.Array(InvoiceCost)) },
    errors: ["conflict", "not_found", "invalid_request", "invalid_body"],
    isExtra: true,
  }),
  diffPlan: endpoint({
    method: "GET",
    path: "/v1/billing/plans/{id}/diff",
    family: "billing",
    summary: "Compare what a month cost each tenant of a plan with what it would cost at other prices",
    description:
      "Changes nothing. Prices that are not given are those of the plan's newest rate, which may be in the future.",
    access: ["admin"],
    query: Type.Object({
      month: Type.Optional(
        text({ maxLength: 16, description: "such as 2026-07; one that has begun; default: the last one" }),
      ),
      rateCpuHourMicros: price("for one virtual processor for an hour"),
      rateMemoryGbHourMicros: price("for one GiB of memory for an hour"),
      rateEgressGbMicros: price("for one GiB that machines send"),
      rateRegistryGbHourMicros: price("for one GiB in the registry for an hour"),
    }),
    answers: { 200: json(PlanDiff) },
    errors: ["invalid_request", "invalid_body", "not_found"],
    isExtra: true,
  }),
  listLedger: endpoint({
    method: "GET",
    path: "/v1/billing/ledger",
    family: "billing",
    summary: "List what changed the tenant's balance, in order, then what is held of its budget",
    description:
      "A transaction of kind `hold` is not posted: it is what a running machine may still cost until it is checked again. It is there while the machine runs, if the plan's budget blocks or stops.",
    access: ["billing:read"],
    query: TenantPageQuery,
    answers: { 200: json(Type.Array(LedgerTransaction)) },
    errors: ["invalid_body"],
    isExtra: true,
  }),
  postToLedger: endpoint({
    method: "POST",
    path: "/v1/billing/ledger",
    family: "billing",
    summary: "Give a tenant credit, or correct its balance",
    access: ["admin"],
    body: { kind: "json", schema: PostToLedgerRequest },
    answers: { 201: json(LedgerTransaction) },
    errors: ["invalid_json", "invalid_body", "invalid_request", "not_found"],
    isExtra: true,
  }),
} as const;
