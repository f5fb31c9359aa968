/**
 * `flotilla tenant ls`: all tenants, with their usage and cost of the current month in UTC.
 */
import { renderMicros } from "@flotilla/base/money";
import type { TenantMeter } from "@flotilla/sdk";
import type { Call } from "../call.ts";

export async function run(call: Call): Promise<void> {
  const flotilla = call.flotilla();
  const [tenants, meters, plans] = await Promise.all([
    flotilla.listTenants(),
    flotilla.listMeters(),
    flotilla.listPlans(),
  ]);
  if (call.output.isJson) return call.output.json(tenants);
  const nameOf = new Map(plans.map(({ id, name }) => [id, name]));
  const metered = new Map(meters.map((meter) => [meter.tenantId, meter]));
  call.output.table(
    ["ID", "NAME", "STATUS", "PLAN", "CPU HOURS", "MEMORY GB HOURS", "COST THIS MONTH"],
    tenants.map(({ id, name, status, planId }) => {
      const meter = metered.get(id);
      return [
        ...[id, name, status, planId === null ? "default" : (nameOf.get(planId) ?? planId)],
        ...[meter?.cpuHours.toFixed(3) ?? "", meter?.memoryGbHours.toFixed(3) ?? ""],
        costText(meter),
      ];
    }),
  );
}

/** Prices of before the bound on prices may make more than any JSON number holds exactly. */
function costText(meter: TenantMeter | undefined): string {
  if (meter === undefined) return "";
  return meter.cost === null ? "beyond 2^53 micros" : renderMicros(meter.cost.totalMicros);
}
