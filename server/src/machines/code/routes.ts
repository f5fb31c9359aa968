/**
 * The handler of code.
 */
import type { HandlersOf } from "../../api/handler.ts";
import type { OutputSink } from "../../link/exec-frames.ts";
import type { CommandAnswers } from "../exec/answer.ts";
import type { Command } from "../exec/request.ts";
import { runCommand } from "../exec/run.ts";
import type { MachineServices } from "../services.ts";
import { interpret } from "./interpret.ts";

export function codeHandlers(services: MachineServices, answers: CommandAnswers): HandlersOf<"runCode"> {
  return {
    async runCode({ caller: { tenantId, keyId }, params: { id }, body, signal, recordSent }) {
      const runOne = async (command: Command) => {
        const options = { tenantId, keyId, id, command, signal, recordSent };
        const run = (sink: OutputSink) => runCommand(services, { ...options, sink });
        return (await answers.collected({ tenantId, machineId: id, output: "both", signal, run })).body;
      };
      return { status: 200, body: await interpret(body, runOne) };
    },
  };
}
