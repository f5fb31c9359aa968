/**
 * The handlers of commands: exec.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { HandlersOf } from "../../http/handler.ts";
import type { MachineServices } from "../services.ts";
import { CollectedOutput, OutputBudget } from "./output.ts";
import { commandOf } from "./request.ts";
import { runCommand } from "./run.ts";

export function execHandlers(services: MachineServices): HandlersOf<"exec"> {
  const budget = new OutputBudget();
  return {
    async exec({ caller, params, query, body, signal }) {
      if (body.stream === true) throw new Refusal("not_implemented", "exec with stream is not served yet");
      const command = commandOf(body);
      using output = new CollectedOutput(query.output ?? "both", budget);
      const { tenantId } = caller;
      const exit = await runCommand(services, { tenantId, id: params.id, command, sink: output, signal });
      if (exit.pid !== null) output.onOutput("stdout", Buffer.from(`pid=${exit.pid}\n`));
      const { exitCode, durationMs } = exit;
      return { status: 200, body: { ...output.fields(), exitCode, durationMs, machineId: params.id } };
    },
  };
}
