/**
 * `flotilla plan update PLAN`: changes a plan's name, limits or budget for all of its tenants, and prints its
 * id.
 */
import type { Call } from "../call.ts";
import { findPlanId } from "../find-by-name.ts";
import { usage } from "../failure.ts";
import { type Limits, limitsOf } from "./limits.ts";

/** A value that was left out stays. */
export interface UpdatePlanOptions extends Limits {
  readonly name?: string;
  readonly budget?: number | "none";
}

export async function run(call: Call, [plan = ""]: readonly string[], options: UpdatePlanOptions): Promise<void> {
  const monthlyBudgetMicros = options.budget === "none" ? null : options.budget;
  const change = { name: options.name, monthlyBudgetMicros, ...limitsOf(options) };
  if (Object.values(change).every((value) => value === undefined))
    throw usage("nothing to change was given", "`flotilla plan update --help` lists the options");
  const flotilla = call.flotilla();
  const updated = await flotilla.updatePlan(await findPlanId(flotilla, plan), change);
  if (call.output.isJson) return call.output.json(updated);
  call.output.line(updated.id);
}
