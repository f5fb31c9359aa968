/**
 * `flotilla tenant update ID`: changes a tenant's plan, its own ceilings or its billing id, and prints its
 * id.
 *
 * What was used before a change of plan keeps its price.
 */
import type { Call } from "../call.ts";
import { findPlanId, findTenantId } from "../find-by-name.ts";
import { usage } from "../failure.ts";

/** A value that was left out stays. */
export interface UpdateTenantOptions {
  readonly plan?: string;
  readonly maxCpus?: number | "default";
  readonly maxMemory?: number | "default";
  readonly maxDisk?: number | "default";
  readonly billingId?: string;
}

export async function run(
  call: Call,
  [reference = ""]: readonly string[],
  options: UpdateTenantOptions,
): Promise<void> {
  const flotilla = call.flotilla();
  const plan = orNull(options.plan);
  const change = {
    planId: typeof plan === "string" ? await findPlanId(flotilla, plan) : plan,
    maxCpus: orNull(options.maxCpus),
    maxMemoryMb: orNull(options.maxMemory),
    maxDiskGb: orNull(options.maxDisk),
    externalBillingId: orNull(options.billingId),
  };
  if (Object.values(change).every((value) => value === undefined))
    throw usage(
      "nothing to change was given",
      "name one with --plan, --max-cpus, --max-memory, --max-disk or --billing-id",
    );
  const id = await findTenantId(flotilla, reference);
  const tenant = await flotilla.updateTenant(id, change);
  if (call.output.isJson) return call.output.json(tenant);
  call.output.line(tenant.id);
}

/** The API takes null for the default. */
function orNull<T>(value: T | "default" | undefined): T | null | undefined {
  return value === "default" ? null : value;
}
