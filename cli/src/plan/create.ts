/**
 * `flotilla plan create NAME`: makes a plan and prints its id.
 */
import type { Call } from "../call.ts";
import { type Prices, pricesOf } from "./prices.ts";

export interface CreatePlanOptions extends Prices {
  readonly default?: boolean;
  readonly maxMachines?: number;
  readonly maxRunning?: number;
  readonly maxCpus?: number;
  readonly maxMemory?: number;
  readonly maxDisk?: number;
  readonly budget?: number;
  readonly budgetPolicy?: string;
}

export async function run(call: Call, [name = ""]: readonly string[], options: CreatePlanOptions): Promise<void> {
  const plan = await call.flotilla().createPlan({
    name,
    isDefault: options.default,
    maxMachines: options.maxMachines,
    maxConcurrentMachines: options.maxRunning,
    maxCpus: options.maxCpus,
    maxMemoryMb: options.maxMemory,
    maxDiskGb: options.maxDisk,
    monthlyBudgetMicros: options.budget,
    // The server knows the policies, and lists them when it refuses another word.
    budgetPolicy: options.budgetPolicy as "none" | undefined,
    ...pricesOf(options),
  });
  if (call.output.isJson) return call.output.json(plan);
  call.output.line(plan.id);
}
