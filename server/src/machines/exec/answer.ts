/**
 * The responses to a command: its output collected into one JSON body, or streamed.
 *
 * Always:
 * - A command that did not run is refused with a status in both forms. Only if its machine takes long to
 *   start, the stream has begun already, and the refusal is its last event.
 * - A streamed command continues after its handler has returned. It ends when its caller disconnects or the
 *   server stops.
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import type { ExecOutput, MachineExecResponse } from "@flotilla/contract/exec";
import { EXEC_FRAMES_TYPE } from "@flotilla/contract/exec-frames";
import type { ExecExit } from "@flotilla/contract/link/link";
import type { OutputSink } from "../../link/exec-frames.ts";
import type { MachineServices } from "../services.ts";
import { CommandEvents } from "./events.ts";
import { CollectedOutput, outputBudget } from "./output.ts";

export interface AnswerOptions {
  readonly tenantId: string;
  readonly machineId: string;
  readonly output: ExecOutput | undefined;
  /** The request's `Accept`. */
  readonly accept?: string | readonly string[] | undefined;
  readonly signal: AbortSignal;
  readonly run: (sink: OutputSink) => Promise<ExecExit>;
}

/** Asks proxies not to buffer the response. */
const STREAM_HEADERS = { "x-accel-buffering": "no" };

type Streamed = {
  readonly status: 200;
  readonly headers: typeof STREAM_HEADERS;
  readonly contentType?: string;
  readonly body: Readable;
};
type Collected = { readonly status: 200; readonly body: MachineExecResponse };

export class CommandAnswers {
  readonly #services: Pick<MachineServices, "context" | "inBackground">;
  readonly #budget = outputBudget();

  constructor(services: Pick<MachineServices, "context" | "inBackground">) {
    this.#services = services;
  }

  async collected({ tenantId, machineId, output = "both", run }: AnswerOptions): Promise<Collected> {
    using kept = new CollectedOutput(output, { budget: this.#budget, tenantId });
    const { exitCode, durationMs, pid } = await run(kept);
    if (pid !== null) kept.onOutput("stdout", Buffer.from(`pid=${pid}\n`));
    return { status: 200, body: { ...kept.fields(), exitCode, durationMs, machineId } };
  }

  async streamed({ machineId, output, accept, signal, run }: AnswerOptions): Promise<Streamed> {
    const { context } = this.#services;
    const hasFrames = acceptsFrames(accept);
    const framing = hasFrames ? "frames" : output === "b64" ? "b64" : output === "text" ? "standard" : "lines";
    const events = new CommandEvents(context.clock, { framing });
    // The signal of `run` reports a caller that disconnects; its broken connection is not our error.
    events.on("error", () => undefined);
    this.#services.inBackground(`a streamed command in ${machineId}`, async () => {
      try {
        events.finish(await run(events));
      } catch (error) {
        const isFault = !(error instanceof Refusal) && !signal.aborted;
        if (isFault && events.hasHead) context.log.error({ machineId, error }, "a streamed command failed");
        events.fail(error);
      }
    });
    await events.head;
    const contentType = hasFrames ? { contentType: EXEC_FRAMES_TYPE } : {};
    return { status: 200, headers: STREAM_HEADERS, ...contentType, body: events };
  }
}

/** Whether the caller names the type of frames and does not exclude it. Wildcards do not request it. Pure. */
export function acceptsFrames(accept: string | readonly string[] | undefined): boolean {
  if (accept === undefined) return false;
  return String(accept)
    .split(",")
    .some((range) => {
      const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
      return type === EXEC_FRAMES_TYPE && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
    });
}
