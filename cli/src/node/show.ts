/**
 * `flotilla node show NODE`: everything about one node. Absent facts are left out.
 */
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import { nodeFacts } from "./view.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  const node = (await call.flotilla().listNodes()).find((each) => each.id === id);
  if (node === undefined) throw new Failure(`node ${id} was not found`, "`flotilla node ls` lists the nodes");
  if (call.output.isJson) call.output.json(node);
  else call.output.facts(nodeFacts(node, call.world.clock.now()));
}
