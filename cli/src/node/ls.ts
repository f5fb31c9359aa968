/**
 * `flotilla node ls`: the nodes of the cluster, their load and their free resources.
 */
import type { Call } from "../call.ts";
import { NODE_HEADS, nodeRow } from "./view.ts";

export async function run(call: Call): Promise<void> {
  const nodes = await call.flotilla().listNodes();
  if (call.output.isJson) return call.output.json(nodes);
  if (nodes.length === 0) return call.output.note("no nodes yet; `flotilla node` runs one");
  const now = call.world.clock.now();
  call.output.table(
    NODE_HEADS,
    nodes.map((node) => nodeRow(node, now)),
  );
}
