/**
 * `flotilla node cancel-drain NODE`: opens a drained or draining node again, and waits until its drain and
 * the moves of it have ended.
 *
 * Machines that have moved stay where they are.
 */
import type { Call } from "../call.ts";
import { watchToItsEnd } from "../operation/watch.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";

export async function run(call: Call, [id = ""]: readonly string[]) {
  const flotilla = call.flotilla();
  const { operationId, ...node } = await flotilla.cancelDrain(id);
  if (operationId !== null) {
    const operation = await watchToItsEnd(call, flotilla, await flotilla.getOperation(operationId));
    if (operation === null) return EXIT_INTERRUPTED;
    for (const { name, message } of operation.steps) if (message !== null) call.output.note(`${name}: ${message}`);
  }
  if (call.output.isJson) call.output.json({ ...node, operationId });
  else call.output.line(id);
  return 0;
}
