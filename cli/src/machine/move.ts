/**
 * `flotilla machine move NAME`: moves a machine with its disk to another node, and waits until it is there.
 *
 * The server does the work: Ctrl-C ends the waiting, not the move; `flotilla operation cancel` ends the move.
 */
import type { Call } from "../call.ts";
import { watchOperation } from "../operation/watch.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";
import { findMachineId } from "./find.ts";

export interface MoveOptions {
  readonly to?: string;
  readonly deadline?: number;
  readonly detach?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: MoveOptions) {
  const { to, deadline, detach } = options;
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const begun = await flotilla.moveMachine(id, {
    ...(to === undefined ? {} : { nodeId: to }),
    ...(deadline === undefined ? {} : { deadlineSeconds: deadline }),
  });
  const operation = detach === true ? begun : await watchOperation(call, flotilla, begun);
  if (operation === null) return EXIT_INTERRUPTED;
  if (call.output.isJson) call.output.json(operation);
  else if (detach === true) call.output.line(operation.id);
  else {
    for (const { name, message } of operation.steps) call.output.note(`${name}: ${message ?? "done"}`);
    call.output.line(operation.resource.name ?? operation.resource.id);
  }
  return 0;
}
