/**
 * `flotilla plan create NAME`: makes a plan and prints its id.
 */
import type { Call } from "../call.ts";
import { type Limits, limitsOf } from "./limits.ts";
import { type Prices, pricesOf } from "./prices.ts";

export interface CreatePlanOptions extends Prices, Limits {
  readonly default?: boolean;
  readonly budget?: number;
}

export async function run(call: Call, [name = ""]: readonly string[], options: CreatePlanOptions): Promise<void> {
  const plan = await call.flotilla().createPlan({
    name,
    isDefault: options.default,
    monthlyBudgetMicros: options.budget,
    ...limitsOf(options),
    ...pricesOf(options),
  });
  if (call.output.isJson) return call.output.json(plan);
  call.output.line(plan.id);
}
