/**
 * `flotilla invoice show MONTH --by …`: the costs of an invoice by machine, app, key or label.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Flotilla, InvoiceCost } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { UNITS } from "./units.ts";

export interface CostsOptions {
  readonly month: string;
  readonly tenant: string | undefined;
  /** `machine`, `app`, `key` or `label:NAME`. */
  readonly by: string;
  /** What was known then; undefined: what is known now. */
  readonly asOf: string | undefined;
}

export const COST_COLUMNS = ["group", "kind", "month", "meter", "rate", "amount", "micros"];

export const costRows = (costs: readonly InvoiceCost[]): string[][] =>
  costs.map(({ group, kind, month, meter, rateId, amount, micros }) => [
    ...[group ?? "", kind, month, meter, rateId, amount, String(micros)],
  ]);

export const readCosts = (
  flotilla: Flotilla,
  { month, tenant, by, asOf }: CostsOptions,
): Promise<readonly InvoiceCost[]> =>
  flotilla.listInvoiceCosts(month, {
    query: { by, ...(tenant === undefined ? {} : { tenantId: tenant }), ...(asOf === undefined ? {} : { asOf }) },
  });

interface Total {
  readonly amounts: Record<InvoiceCost["meter"], bigint>;
  micros: number;
}

/** One row for each group, the most expensive first, and their sum. */
export function printCosts({ output }: Call, by: string, costs: readonly InvoiceCost[]): void {
  const totals = new Map<string | null, Total>();
  const sum = emptyTotal();
  for (const { group, meter, amount, micros } of costs) {
    const total = totals.get(group) ?? emptyTotal();
    totals.set(group, total);
    for (const each of [total, sum]) {
      each.amounts[meter] += BigInt(amount);
      each.micros += micros;
    }
  }
  const sorted = [...totals].toSorted(([, one], [, other]) => other.micros - one.micros);
  output.table(
    [by.replace(/^label:/, "").toUpperCase(), "MACHINE HOURS", "CPU HOURS", "MEMORY GB HOURS", "COST"],
    [...sorted.map(([group, total]) => row(group ?? "(none)", total)), row("(all)", sum)],
  );
}

const emptyTotal = (): Total => ({
  amounts: { uptime: 0n, cpu: 0n, memory: 0n, disk: 0n, egress: 0n, registry: 0n },
  micros: 0,
});

function row(name: string, { amounts, micros }: Total): string[] {
  const hours = (meter: "uptime" | "cpu" | "memory"): string => (Number(amounts[meter]) / UNITS[meter].per).toFixed(3);
  return [name, hours("uptime"), hours("cpu"), hours("memory"), renderMicros(micros)];
}
