/**
 * `flotilla plan rate PLAN`: sets a plan's prices from a time on, and prints the id of the new rate.
 */
import type { Call } from "../call.ts";
import { findPlanId } from "../find-by-name.ts";
import { usage } from "../failure.ts";
import { type Prices, pricesOf } from "./prices.ts";

export interface SetRateOptions extends Prices {
  readonly from?: string;
}

export async function run(call: Call, [plan = ""]: readonly string[], options: SetRateOptions): Promise<void> {
  const prices = pricesOf(options);
  if (Object.keys(prices).length === 0)
    throw usage("no price was given", "name one with --cpu-hour, --memory-gb-hour, --egress-gb or --registry-gb-hour");
  const flotilla = call.flotilla();
  const rate = await flotilla.createRate(await findPlanId(flotilla, plan), { ...prices, activeFrom: options.from });
  if (call.output.isJson) return call.output.json(rate);
  call.output.note(`it holds from ${rate.activeFrom} on`);
  call.output.line(rate.id);
}
