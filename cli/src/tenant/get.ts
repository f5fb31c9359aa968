/**
 * `flotilla tenant get ID`: a tenant's plan and its own ceilings. What it may use in total, and has used, it
 * reads with `flotilla account`.
 */
import { renderMicros } from "@flotilla/base/money";
import type { Call } from "../call.ts";
import { findTenantId } from "../find-by-name.ts";
import { renderMemory } from "../table.ts";

const OF_PLAN = "as its plan";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const tenant = await flotilla.getTenant(await findTenantId(flotilla, reference));
  if (call.output.isJson) return call.output.json(tenant);
  const plan = tenant.planId === null ? "default" : (await flotilla.getPlan(tenant.planId)).name;
  call.output.facts([
    ["tenant", tenant.id],
    ["name", tenant.name],
    ["status", tenant.status],
    ["plan", plan],
    ["billing id", tenant.externalBillingId],
    ["test clock", tenant.testClock],
    ["CPUs of one machine", tenant.maxCpus === null ? OF_PLAN : `at most ${tenant.maxCpus}`],
    ["memory of one machine", tenant.maxMemoryMb === null ? OF_PLAN : `at most ${renderMemory(tenant.maxMemoryMb)}`],
    ["disk of one machine", tenant.maxDiskGb === null ? OF_PLAN : `at most ${tenant.maxDiskGb} GB`],
    ["credit", renderMicros(tenant.freeCreditMicros)],
    ["created", tenant.createdAt],
    ["changed", tenant.updatedAt],
  ]);
}
