/**
 * `flotilla node ls`: the nodes of the cluster, their load and their free resources.
 */
import type { NodeInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { clean, renderSpan } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const nodes = await call.flotilla().listNodes();
  if (call.output.isJson) return call.output.json(nodes);
  if (nodes.length === 0) return call.output.note("no nodes yet; `flotilla node` runs one");
  const now = call.world.clock.now();
  call.output.table(
    ["NODE", "STATUS", "CPUS BUSY", "FREE MEMORY", "FREE DISK", "LAST SEEN", "RUNTIME"],
    nodes.map((node) => [
      node.id,
      statusOf(node),
      `${node.usedCpus.toFixed(1)} of ${node.totalCpus}`,
      `${node.availableMemoryMb} of ${node.totalMemoryMb} MB`,
      `${node.availableDiskGb} of ${node.totalDiskGb} GB`,
      node.lastHeartbeatAt === null ? "never" : `${renderSpan(now - Date.parse(node.lastHeartbeatAt))} ago`,
      clean(node.runtime ?? ""),
    ]),
  );
}

function statusOf({ status, cordonedAt, maintenanceAt }: NodeInfo): string {
  if (maintenanceAt !== null) return `${status}, maintenance`;
  return cordonedAt === null ? status : `${status}, cordoned`;
}
