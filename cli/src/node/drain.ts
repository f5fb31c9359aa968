/**
 * `flotilla node drain NODE`: closes a node for maintenance, and waits until its machines have moved or
 * stopped.
 *
 * The server does the work: Ctrl-C ends the waiting, not the draining. The last note says what the node still
 * has.
 */
import { renderSpan } from "@flotilla/base/span";
import type { DrainPlan } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { clean, renderBytes } from "../table.ts";
import { watchOperation } from "../operation/watch.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";

export interface DrainOptions {
  readonly deadline?: number;
  readonly detach?: boolean;
  readonly dryRun?: boolean;
}

export async function run(call: Call, [id = ""]: readonly string[], { deadline, detach, dryRun }: DrainOptions) {
  const flotilla = call.flotilla();
  if (dryRun === true) {
    showPlan(call, await flotilla.planDrain(id));
    return 0;
  }
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
      "it accepts machines again after a reboot, a restart of `flotilla node`, or `flotilla node cancel-drain`",
    );
    call.output.line(id);
  }
  return 0;
}

function showPlan(call: Call, plan: DrainPlan): void {
  const { output } = call;
  if (output.isJson) return output.json(plan);
  const { moves, blocked, bytes, seconds, estimate } = plan;
  if (moves.length + blocked.length > 0)
    output.table(
      ["MACHINE", "STATE", "MOVES TO", "DISRUPTION", "SIZE", "AWAY", "WHY"],
      [
        ...moves.map((each) => [
          each.name ?? each.machineId,
          each.state,
          each.toNodeId,
          each.disruption,
          renderBytes(each.bytes),
          renderSpan(each.seconds * 1000),
          clean(each.reason ?? ""),
        ]),
        ...blocked.map((each) => [each.name ?? each.machineId, each.state, "stays", "", "", "", clean(each.reason)]),
      ],
    );
  const stay =
    blocked.length === 0 ? "none would stay" : `${blocked.length} would stay, and be stopped at the deadline`;
  output.note(
    `${moves.length} of ${moves.length + blocked.length} machines would move, ${renderBytes(bytes)}, in about ${renderSpan(seconds * 1000)}; ${stay}`,
  );
  output.note(`estimated with ${estimate}`);
}
