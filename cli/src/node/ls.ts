/**
 * `flotilla node ls`: the nodes of the cluster, and what each still has room for.
 */
import type { Call } from "../call.ts";
import { clean, renderSpan } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const nodes = await call.flotilla().listNodes();
  if (call.output.isJson) return call.output.json(nodes);
  if (nodes.length === 0) return call.output.note("no nodes yet; `flotilla node` runs one");
  const now = call.world.clock.now();
  call.output.table(
    ["NODE", "STATUS", "FREE CPUS", "FREE MEMORY", "FREE DISK", "HEARD FROM", "RUNTIME"],
    nodes.map((node) => [
      node.id,
      node.status,
      `${node.availableCpus} of ${node.totalCpus}`,
      `${node.availableMemoryMb} of ${node.totalMemoryMb} MB`,
      `${node.availableDiskGb} of ${node.totalDiskGb} GB`,
      node.lastHeartbeatAt === null ? "never" : `${renderSpan(now - Date.parse(node.lastHeartbeatAt))} ago`,
      clean(node.runtime ?? ""),
    ]),
  );
}
