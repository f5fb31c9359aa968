/**
 * `flotilla billing credit TENANT AMOUNT`: adds to a tenant's balance, and prints the balance after it.
 */
import { renderMicros } from "@flotilla/base/money";
import { micros as microsOf } from "../arguments.ts";
import type { Call } from "../call.ts";
import { findTenantId } from "../find-by-name.ts";
import { usage } from "../failure.ts";

export interface CreditOptions {
  readonly note?: string;
  readonly takeBack?: boolean;
}

export async function run(
  call: Call,
  [tenant = "", amount = ""]: readonly string[],
  { note, takeBack = false }: CreditOptions,
): Promise<void> {
  const micros = (takeBack ? -1 : 1) * amountOf(amount);
  const flotilla = call.flotilla();
  const posted = await flotilla.postToLedger({
    ...{ tenantId: await findTenantId(flotilla, tenant), note, kind: takeBack ? "adjustment" : "credit" },
    micros,
  });
  if (call.output.isJson) return call.output.json(posted);
  call.output.line(renderMicros(posted.balanceMicros));
}

function amountOf(text: string): number {
  try {
    return microsOf(text);
  } catch (error) {
    throw usage(`the amount is "${text}"`, (error as Error).message);
  }
}
