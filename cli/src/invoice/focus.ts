/**
 * An invoice in the columns of FOCUS 1.0, one row for each machine, key, set of labels, meter and price.
 * Pure.
 *
 * Always:
 * - The rows add up to the invoice. A line is rounded down once; its rows get the differences of the rounded
 *   running sums, in the order of machines, keys and labels.
 * - An adjustment has one row, without a machine.
 * - `Tags` has the labels as JSON, with sorted names. `x_App` (the label `app`) and `x_ApiKeyId` are columns
 *   of Flotilla's own.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Invoice, InvoiceInterval, InvoiceLine } from "@flotilla/sdk";
import { partsOf, priceOf } from "./derive.ts";

export const FOCUS_COLUMNS = [
  ...["BillingAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd", "ChargeCategory", "ChargeClass"],
  ...["ChargeDescription", "ChargePeriodStart", "ChargePeriodEnd", "ConsumedQuantity", "ConsumedUnit", "BilledCost"],
  ...["EffectiveCost", "ListCost", "ContractedCost", "ListUnitPrice", "PricingUnit", "ProviderName", "PublisherName"],
  ...["InvoiceIssuerName", "ServiceCategory", "ServiceName", "ResourceId", "ResourceType", "SkuId", "SkuPriceId"],
  ...["Tags", "x_App", "x_ApiKeyId"],
] as const;

/** The label that names the app of a machine, as for `--by app`. */
const APP_LABEL = "app";

/** ISO 4217's code for no currency: an installation's prices are in the unit that its operator means. */
const NO_CURRENCY = "X".repeat(3);

const UNITS = {
  uptime: "Milliseconds",
  cpu: "CPU Milliseconds",
  memory: "MiB Milliseconds",
  disk: "GiB Milliseconds",
  egress: "Bytes",
  registry: "MiB Milliseconds",
};
const PRICING_UNITS = {
  uptime: "Hours",
  cpu: "Hours",
  memory: "GB Hours",
  disk: "Hours",
  egress: "GB",
  registry: "GB Hours",
};

/** `intervals`: those of the invoice's own month. */
export function focusRows(invoice: Invoice, intervals: readonly InvoiceInterval[]): string[][] {
  const span = { from: Date.parse(invoice.from), to: Date.parse(invoice.to) };
  const parts = intervals.flatMap((each) => partsOf(each, invoice.rates, span));
  return invoice.lines.flatMap((line) => {
    if (line.kind === "adjustment")
      return [row(invoice, line, { ...NO_ONE, amount: BigInt(line.amount), micros: line.micros })];
    const amounts = new Map<string, bigint>();
    for (const { interval, rateId, amount } of parts) {
      if (interval.meter !== line.meter || rateId !== line.rateId) continue;
      const name = nameOf(interval);
      amounts.set(name, (amounts.get(name) ?? 0n) + amount);
    }
    const rate = invoice.rates.find(({ id }) => id === line.rateId);
    let running = 0n;
    return [...amounts]
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, amount]) => {
        const before = priceOf(line.meter, running, rate);
        running += amount;
        const [machineId, keyId, tags] = JSON.parse(name) as [string, string, string];
        const micros = Number(priceOf(line.meter, running, rate) - before);
        return row(invoice, line, { machineId, keyId, tags, amount, micros });
      });
  });
}

/** What distinguishes the rows of a line, as text that sorts. */
function nameOf({ machineId, keyId, labels }: InvoiceInterval): string {
  const sorted = Object.entries(labels).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return JSON.stringify([machineId ?? "", keyId ?? "", JSON.stringify(Object.fromEntries(sorted))]);
}

const NO_ONE = { machineId: "", keyId: "", tags: "{}" };

interface Share {
  readonly machineId: string;
  readonly keyId: string;
  /** A JSON object. */
  readonly tags: string;
  readonly amount: bigint;
  readonly micros: number;
}

function row(invoice: Invoice, line: InvoiceLine, { machineId, keyId, tags, amount, micros }: Share): string[] {
  const isAdjustment = line.kind === "adjustment";
  const cost = renderMicros(micros);
  const rate = invoice.rates.find(({ id }) => id === line.rateId);
  const prices = {
    cpu: rate?.cpuHourMicros,
    memory: rate?.memoryGbHourMicros,
    egress: rate?.egressGbMicros,
    registry: rate?.registryGbHourMicros,
  };
  const price = line.meter === "uptime" || line.meter === "disk" ? 0 : prices[line.meter];
  const start = isAdjustment ? `${line.month}-01T00:00:00.000Z` : invoice.from;
  const end = isAdjustment ? endOfMonth(start) : invoice.to;
  return [
    ...[invoice.tenantId, NO_CURRENCY, invoice.from, invoice.to, "Usage", isAdjustment ? "Correction" : ""],
    ...[`${line.meter} of ${line.month}`, start, end, String(amount), UNITS[line.meter], cost],
    ...[cost, cost, cost, renderMicros(price ?? 0), PRICING_UNITS[line.meter], "Flotilla", "Flotilla"],
    ...["Flotilla", ...(line.meter === "registry" ? ["Storage", "Registry"] : ["Compute", "Machines"])],
    ...[machineId, machineId === "" ? "" : "Machine", line.meter, line.rateId],
    ...[tags, (JSON.parse(tags) as Record<string, string>)[APP_LABEL] ?? "", keyId],
  ];
}

function endOfMonth(start: string): string {
  const date = new Date(start);
  return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1)).toISOString();
}
