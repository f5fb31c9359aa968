/**
 * `flotilla node drain NODE`: closes a node for maintenance, and waits until its machines have moved or stopped.
 *
 * The server does the work: Ctrl-C ends the waiting, not the draining. The last note says what the node still has.
 */
import type { Call } from "../call.ts";
import { EXIT_INTERRUPTED, watchOperation } from "../operation/watch.ts";

export interface DrainOptions {
  readonly deadline?: number;
  readonly detach?: boolean;
}

export async function run(call: Call, [id = ""]: readonly string[], { deadline, detach }: DrainOptions) {
  const flotilla = call.flotilla();
  const begun = await flotilla.drainNode(id, deadline === undefined ? {} : { deadlineSeconds: deadline });
  const operation =
    detach === true
      ? await flotilla.getOperation(begun.operationId)
      : await watchOperation(call, flotilla, await flotilla.getOperation(begun.operationId));
  if (operation === null) return EXIT_INTERRUPTED;
  if (call.output.isJson) call.output.json(operation);
  else if (detach === true) call.output.line(operation.id);
  else {
    for (const { name, message } of operation.steps) call.output.note(`${name}: ${message ?? "done"}`);
    call.output.note(
      "it accepts machines again when its agent restarts: after a reboot, or a restart of `flotilla node`",
    );
    call.output.line(id);
  }
  return 0;
}
