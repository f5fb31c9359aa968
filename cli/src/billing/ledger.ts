/**
 * `flotilla billing ledger`: what changed a tenant's balance, and the balance after each; then what is held
 * of its budget.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { queryOfTenant } from "../find-by-name.ts";

export interface LedgerOptions {
  readonly tenant?: string;
}

export async function run(call: Call, _operands: readonly string[], { tenant }: LedgerOptions): Promise<void> {
  const flotilla = call.flotilla();
  const ledger = await flotilla.listLedger({ query: await queryOfTenant(flotilla, tenant) });
  if (call.output.isJson) return call.output.json(ledger);
  call.output.table(
    ["TIME", "KIND", "AMOUNT", "BALANCE", "NOTE"],
    ledger.map(({ createdAt, kind, entries, balanceMicros, note }) => [
      ...[
        createdAt,
        kind,
        renderMicros(entries.find(({ account }) => account === "balance" || account === "held")?.micros ?? 0),
      ],
      ...[renderMicros(balanceMicros), note],
    ]),
  );
}
