/**
 * The handler of a machine's log.
 */
import { Refusal } from "@flotilla/contract/errors";
import { LOG_TAIL_DEFAULT, LOG_TAIL_MAX } from "@flotilla/contract/limits";
import type { HandlersOf } from "../../api/handler.ts";
import type { MachineServices } from "../services.ts";
import { readLogs } from "./read.ts";

export function logHandlers(
  services: Pick<MachineServices, "cache" | "context" | "link">,
): HandlersOf<"listMachineLogs"> {
  return {
    async listMachineLogs({ caller, params, query }) {
      const { follow: isFollowing = false, tail = LOG_TAIL_DEFAULT, format = "text" } = query;
      if (tail > LOG_TAIL_MAX) {
        const text = `tail: ${tail} lines of a log are more than one request may have; request at most ${LOG_TAIL_MAX}`;
        throw new Refusal("invalid_request", text);
      }
      const { tenantId } = caller;
      const body = await readLogs(services, { tenantId, id: params.id, tail, isFollowing, format });
      return { status: 200, body };
    },
  };
}
