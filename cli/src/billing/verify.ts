/**
 * `flotilla billing verify`: computes every final invoice again from the intervals that it knew, and
 * compares.
 *
 * The computation (invoice/derive.ts) shares nothing with the server: amounts and prices follow from
 * intervals and rates as the API gives them. The checks of each invoice: its total, and for each month in its
 * lines, what this and all earlier invoices have of that month together. For the newest invoice every earlier
 * month is checked, so a missing adjustment is found as well.
 */
import type { Flotilla, Invoice, InvoiceInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findTenantId } from "../find-by-name.ts";
import { derive, priceOf } from "../invoice/derive.ts";
import { readIntervals } from "../invoice/intervals.ts";

export interface VerifyOptions {
  readonly tenant?: string;
}

interface Tally {
  readonly differences: string[];
  /** By series. */
  readonly numbers: Map<string, number[]>;
  invoices: number;
  lines: number;
  intervals: number;
}

export async function run(call: Call, _operands: readonly string[], { tenant }: VerifyOptions): Promise<number> {
  const flotilla = call.flotilla();
  const tally: Tally = { differences: [], numbers: new Map(), invoices: 0, lines: 0, intervals: 0 };
  const tenants = await tenantsOf(flotilla, tenant);
  const progress = call.output.progress("verifying");
  try {
    for (const id of tenants.ids) await verifyTenant(flotilla, id, tally);
  } finally {
    progress[Symbol.dispose]();
  }
  if (tenants.isAll) checkNumbers(tally);
  const { differences, invoices, lines, intervals } = tally;
  if (call.output.isJson) call.output.json({ tenants: tenants.ids.length, invoices, lines, intervals, differences });
  for (const difference of differences) call.output.line(difference);
  call.output.line(
    `${invoices} final invoices of ${tenants.ids.length} tenants, ${lines} lines, ${intervals} intervals: ${differences.length} differences`,
  );
  return differences.length === 0 ? 0 : 1;
}

/** undefined: the caller's own. */
async function tenantsOf(
  flotilla: Flotilla,
  named: string | undefined,
): Promise<{ readonly ids: readonly (string | undefined)[]; readonly isAll: boolean }> {
  if (named !== undefined) return { ids: [await findTenantId(flotilla, named)], isAll: false };
  const { scopes } = await flotilla.getCaller();
  if (!scopes.some((scope) => scope === "admin" || scope === "*")) return { ids: [undefined], isAll: false };
  return { ids: (await flotilla.listTenants()).map(({ id }) => id), isAll: true };
}

async function verifyTenant(flotilla: Flotilla, tenant: string | undefined, tally: Tally): Promise<void> {
  const query = tenant === undefined ? {} : { tenantId: tenant };
  const listed = await flotilla.listInvoices({ query });
  const final = listed.filter(({ status }) => status === "finalized");
  const invoiced = new Map<string, Sum>();
  const months = new Set<string>();
  for (const { id, totalMicros } of final) {
    const invoice = await flotilla.getInvoice(id, { query });
    tally.invoices += 1;
    tally.lines += invoice.lines.length;
    if (invoice.number !== null) noteNumber(tally, invoice.series ?? "", invoice.number);
    const total = invoice.lines.reduce((sum, { micros }) => sum + micros, 0);
    if (total !== invoice.totalMicros || total !== totalMicros)
      tally.differences.push(
        `${invoice.tenantId} ${id}: its lines add up to ${total}, its total is ${invoice.totalMicros}`,
      );
    const touched = new Set([id]);
    for (const { month, meter, rateId, amount, micros } of invoice.lines) {
      const key = `${month} ${meter} ${rateId}`;
      const before = invoiced.get(key) ?? { amount: 0n, micros: 0n };
      invoiced.set(key, { amount: before.amount + BigInt(amount), micros: before.micros + BigInt(micros) });
      touched.add(month);
    }
    for (const month of touched) months.add(month);
    const isNewest = id === final.at(-1)?.id;
    for (const month of isNewest ? months : touched)
      await verifyMonth(flotilla, { tenant, invoice, month, invoiced }, tally);
  }
  await verifyLedger(flotilla, { tenant, final }, tally);
}

interface Sum {
  readonly amount: bigint;
  readonly micros: bigint;
}

interface MonthChecked {
  readonly tenant: string | undefined;
  readonly invoice: Invoice;
  readonly month: string;
  readonly invoiced: ReadonlyMap<string, Sum>;
}

async function verifyMonth(flotilla: Flotilla, checked: MonthChecked, tally: Tally): Promise<void> {
  const { tenant, invoice, month, invoiced } = checked;
  const where = `${invoice.tenantId} ${invoice.id}`;
  const intervals = await readIntervals(flotilla, { id: invoice.id, tenant, month });
  tally.intervals += intervals.length;
  let sums: ReadonlyMap<string, bigint>;
  try {
    sums = derive(intervals, invoice.rates, spanOf(month));
  } catch (error) {
    tally.differences.push(`${where}: ${(error as Error).message}`);
    return;
  }
  const keys = [...invoiced.keys()]
    .filter((key) => key.startsWith(`${month} `))
    .map((key) => key.slice(month.length + 1));
  for (const key of new Set([...sums.keys(), ...keys])) {
    const [meter = "", rateId = ""] = key.split(" ");
    const said = invoiced.get(`${month} ${key}`) ?? { amount: 0n, micros: 0n };
    const amount = sums.get(key) ?? 0n;
    const micros = priceOf(
      meter,
      amount,
      invoice.rates.find(({ id }) => id === rateId),
    );
    if (said.amount !== amount || said.micros !== micros)
      tally.differences.push(
        `${where}: ${meter} of ${month} at ${rateId} is invoiced as ${said.micros} micros for ${said.amount}; its intervals make ${micros} for ${amount}`,
      );
  }
}

function spanOf(month: string): { readonly from: number; readonly to: number } {
  const date = new Date(`${month}-01T00:00:00Z`);
  return { from: date.getTime(), to: Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1) };
}

/**
 * Each transaction adds up to 0, each final invoice is posted once with its total, and balances are running
 * sums.
 */
async function verifyLedger(
  flotilla: Flotilla,
  { tenant, final }: { readonly tenant: string | undefined; readonly final: readonly InvoiceInfo[] },
  { differences }: Tally,
): Promise<void> {
  const ledger = await flotilla.listLedger({ query: tenant === undefined ? {} : { tenantId: tenant } });
  let balance = 0;
  for (const { id, entries, balanceMicros } of ledger) {
    const sum = entries.reduce((total, { micros }) => total + micros, 0);
    if (sum !== 0) differences.push(`ledger transaction ${id}: its entries add up to ${sum}`);
    balance += entries.find(({ account }) => account === "balance")?.micros ?? 0;
    if (balance !== balanceMicros)
      differences.push(`ledger transaction ${id}: the balance is ${balanceMicros}, and should be ${balance}`);
  }
  for (const { id, tenantId, totalMicros } of final) {
    const posted = ledger.filter(({ invoice }) => invoice === id);
    const micros = posted.flatMap(({ entries }) => entries).find(({ account }) => account === "balance")?.micros ?? 0;
    if (posted.length !== 1 || micros !== -totalMicros)
      differences.push(`${tenantId} ${id}: posted ${posted.length} times with ${-micros}; its total is ${totalMicros}`);
  }
}

function noteNumber({ numbers }: Tally, series: string, number: number): void {
  const known = numbers.get(series);
  if (known === undefined) numbers.set(series, [number]);
  else known.push(number);
}

function checkNumbers({ numbers, differences }: Tally): void {
  for (const [series, given] of numbers) {
    const sorted = given.toSorted((one, other) => one - other);
    const at = sorted.findIndex((number, index) => number !== index + 1);
    if (at < 0) continue;
    const where = series === "" ? "" : ` of series ${series}`;
    differences.push(`invoice number ${at + 1}${where} is missing or twice; the next one is ${sorted[at]}`);
  }
}
