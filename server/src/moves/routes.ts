/**
 * The handler of moves of machines.
 */
import type { HandlersOf } from "../api/handler.ts";
import type { MachineServices } from "../machines/services.ts";
import { operationInfo } from "../operations/view.ts";
import { requestMove } from "./move.ts";

export function moveHandlers(
  services: Pick<MachineServices, "cache" | "context" | "nodes">,
): HandlersOf<"moveMachine"> {
  return {
    async moveMachine(request) {
      const operation = await requestMove(services, {
        operationId: request.newId("operation"),
        tenantId: request.caller.tenantId,
        machineId: request.params.id,
        nodeId: request.body?.nodeId ?? null,
        deadlineSeconds: request.body?.deadlineSeconds ?? null,
      });
      return { status: 202, body: operationInfo(operation) };
    },
  };
}
