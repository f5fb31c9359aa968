/**
 * `flotilla plan rates PLAN`: every price of a plan, in the order of their times.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { findPlanId } from "../find-by-name.ts";

export async function run(call: Call, [plan = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const rates = await flotilla.listRates(await findPlanId(flotilla, plan));
  if (call.output.isJson) return call.output.json(rates);
  const now = call.world.clock.now();
  const current = rates.findLast(({ activeFrom }) => Date.parse(activeFrom) <= now);
  call.output.table(
    ["ID", "FROM", "CPU HOUR", "MEMORY GB HOUR", "EGRESS GB", "REGISTRY GB HOUR", ""],
    rates.map((rate) => [
      rate.id,
      Date.parse(rate.activeFrom) === 0 ? "the beginning" : rate.activeFrom,
      renderMicros(rate.rateCpuHourMicros),
      renderMicros(rate.rateMemoryGbHourMicros),
      renderMicros(rate.rateEgressGbMicros),
      renderMicros(rate.rateRegistryGbHourMicros),
      rate === current ? "now" : "",
    ]),
  );
}
