/**
 * The handler of a machine's log.
 */
import type { HandlersOf } from "../../api/handler.ts";
import type { MachineServices } from "../services.ts";
import { logAnswer } from "./answer.ts";
import { logPart } from "./part.ts";
import { readLogs } from "./read.ts";

export function logHandlers(
  services: Pick<MachineServices, "cache" | "context" | "link">,
): HandlersOf<"listMachineLogs"> {
  return {
    async listMachineLogs({ caller, params: { id }, query }) {
      const part = logPart(query);
      return logAnswer(id, part, await readLogs(services, { tenantId: caller.tenantId, id, part }));
    },
  };
}
