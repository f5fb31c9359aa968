/**
 * The handlers of commands: exec, as one answer or as a stream.
 */
import type { ExecOutput } from "@flotilla/contract/exec";
import type { HandlersOf } from "../../api/handler.ts";
import type { OutputSink } from "../../link/exec-frames.ts";
import type { MachineServices } from "../services.ts";
import type { AnswerOptions, CommandAnswers } from "./answer.ts";
import { type CommandRequest, commandOf } from "./request.ts";
import { runCommand } from "./run.ts";

interface Asked {
  readonly caller: { readonly tenantId: string; readonly keyId: string };
  readonly params: { readonly id: string };
  readonly query: { readonly output?: ExecOutput };
  readonly body: CommandRequest;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly signal: AbortSignal;
  readonly recordSent: () => void;
}

export function execHandlers(services: MachineServices, answers: CommandAnswers): HandlersOf<"exec" | "execStream"> {
  const optionsOf = ({ caller, params, query, body, headers, signal, recordSent }: Asked): AnswerOptions => {
    const command = commandOf(body);
    const { id } = params;
    const { tenantId, keyId } = caller;
    const run = (sink: OutputSink) => runCommand(services, { tenantId, keyId, id, command, sink, signal, recordSent });
    return { tenantId, machineId: id, output: query.output, accept: headers["accept"], signal, run };
  };
  return {
    async exec(request) {
      const options = optionsOf(request);
      return request.body.stream === true ? await answers.streamed(options) : await answers.collected(options);
    },
    execStream: (request) => answers.streamed(optionsOf(request)),
  };
}
