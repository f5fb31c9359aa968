/**
 * `flotilla billing credit TENANT AMOUNT`: adds to a tenant's balance, and prints the balance after it.
 */
import { renderMicros } from "@flotilla/base/money";
import { micros } from "../arguments.ts";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";

export interface CreditOptions {
  readonly note?: string;
  readonly takeBack?: boolean;
}

export async function run(
  call: Call,
  [tenantId = "", amount = ""]: readonly string[],
  { note, takeBack = false }: CreditOptions,
): Promise<void> {
  const posted = await call.flotilla().postToLedger({
    ...{ tenantId, note, kind: takeBack ? "adjustment" : "credit" },
    micros: (takeBack ? -1 : 1) * amountOf(amount),
  });
  if (call.output.isJson) return call.output.json(posted);
  call.output.line(renderMicros(posted.balanceMicros));
}

function amountOf(text: string): number {
  try {
    return micros(text);
  } catch (error) {
    throw usage(`the amount is "${text}"`, (error as Error).message);
  }
}
