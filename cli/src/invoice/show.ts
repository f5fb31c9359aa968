/**
 * `flotilla invoice show MONTH`: an invoice with its lines, for people or as CSV.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Invoice } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { queryOfTenant } from "../find-by-name.ts";
import { COST_COLUMNS, costRows, printCosts, readCosts } from "./costs.ts";
import { renderCsv } from "./csv.ts";
import { FOCUS_COLUMNS, focusRows } from "./focus.ts";
import { numberOf } from "./number.ts";
import { readIntervals } from "./intervals.ts";
import { UNITS } from "./units.ts";

export interface ShowInvoiceOptions {
  readonly tenant?: string;
  readonly asOf?: string;
  readonly csv?: boolean;
  readonly focus?: boolean;
  readonly by?: string;
}

export async function run(call: Call, [month = ""]: readonly string[], options: ShowInvoiceOptions): Promise<void> {
  checkOptions(options);
  const { asOf, csv = false, focus = false, by } = options;
  const flotilla = call.flotilla();
  const whose = await queryOfTenant(flotilla, options.tenant);
  if (by !== undefined) {
    const costs = await readCosts(flotilla, { month, tenant: whose.tenantId, by, asOf });
    if (call.output.isJson) return call.output.json(costs);
    if (csv) return call.output.lines(renderCsv(COST_COLUMNS, costRows(costs)));
    return printCosts(call, by, costs);
  }
  const query = { ...whose, ...(asOf === undefined ? {} : { asOf }) };
  const invoice = await flotilla.getInvoice(month, { query });
  if (call.output.isJson) return call.output.json(invoice);
  if (csv) return call.output.lines(renderCsv(LINE_COLUMNS, lineRows(invoice)));
  if (focus) {
    const intervals = await readIntervals(flotilla, { id: invoice.id, tenant: whose.tenantId });
    return call.output.lines(renderCsv(FOCUS_COLUMNS, focusRows(invoice, intervals)));
  }
  print(call, invoice);
}

/** Throws a usage error. */
function checkOptions({ asOf, csv = false, focus = false, by }: ShowInvoiceOptions): void {
  if (csv && focus) throw usage("--csv and --focus exclude each other", "name one of them");
  if (focus && asOf !== undefined)
    throw usage("--focus exports what is known now", "leave out --as-of, or use --csv for what was known then");
  if (by === undefined) return;
  if (focus)
    throw usage("--by and --focus exclude each other", "name one of them; --focus has labels and keys as columns");
  if (!["machine", "app", "key"].includes(by) && !by.startsWith("label:"))
    throw usage(`costs are not divided by ${by}`, "name machine, app, key, or a label such as label:team");
}

const LINE_COLUMNS = ["tenant", "invoice", "number", "kind", "month", "meter", "rate", "amount", "micros"];

const lineRows = (invoice: Invoice): string[][] =>
  invoice.lines.map((line) => [
    ...[invoice.tenantId, invoice.id, numberOf(invoice), line.kind, line.month],
    ...[line.meter, line.rateId, line.amount, String(line.micros)],
  ]);

function print({ output }: Call, invoice: Invoice): void {
  output.facts([
    ["month", invoice.id],
    ["tenant", invoice.tenantId],
    ["status", invoice.status],
    ["number", numberOf(invoice) || null],
    ["test", invoice.isTest ? "of a test clock, not to be paid" : null],
    ["final", invoice.finalizedAt ?? `from ${invoice.finalFrom}`],
    ["as of", invoice.asOf],
    ["total", renderMicros(invoice.totalMicros)],
  ]);
  output.line();
  output.table(
    ["KIND", "MONTH", "AMOUNT", "RATE", "COST"],
    invoice.lines.map((line) => [
      ...[
        line.kind,
        line.month,
        `${(Number(line.amount) / UNITS[line.meter].per).toFixed(3)} ${UNITS[line.meter].name}`,
      ],
      ...[line.rateId, renderMicros(line.micros)],
    ]),
  );
}
