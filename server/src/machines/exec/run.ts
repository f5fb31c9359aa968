/**
 * Runs a command in a machine: finds it, starts it if it is stopped, and streams through its node.
 *
 * Always:
 * - A command is sent a second time only when the node answered that it did not run it, or it could not be
 *   sent.
 * - When the caller disconnects the command is ended, unless it runs in the background.
 * - A command that was ended at its time limit says so at the end of its errors.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit } from "@flotilla/contract/link/link";
import { type OutputSink, resumeKeyOf } from "../../link/exec-frames.ts";
import { runOnNode } from "../../link/exec-link.ts";
import { type MachineRecord, nodeOf } from "../record.ts";
import { type InMachineOptions, inRunningMachine, whenAgentListens } from "../running.ts";
import type { MachineServices } from "../services.ts";
import { phaseOf } from "../state.ts";
import { locateFor } from "../locate.ts";
import type { Command } from "./request.ts";

const TIMED_OUT = Buffer.from("command timed out\n");

export interface RunOptions extends InMachineOptions {
  readonly command: Command;
  readonly sink: OutputSink;
}

/** A command of the server itself. */
type QuietOptions = Omit<RunOptions, "keyId" | "recordSent">;

/** The result of the command. Throws a Refusal when it did not run, or when its result is unknown. */
export async function runCommand(services: MachineServices, options: RunOptions): Promise<ExecExit> {
  const { activity, context } = services;
  return await inRunningMachine(services, options, async (machine) => {
    activity.execBegan(machine.id);
    const startedAt = context.clock.monotonic();
    let exitCode: number | null = null;
    try {
      const exit = await whenAgentListens(services, options.signal, () => attemptOnce(services, machine, options));
      exitCode = exit.exitCode;
      if (exit.hasTimedOut) void options.sink.onOutput("stderr", TIMED_OUT);
      return exit;
    } catch (error) {
      options.sink.onFailing?.();
      throw await reasonOf(services, options, error);
    } finally {
      activity.execEnded(machine.id, exitCode, context.clock.monotonic() - startedAt);
    }
  });
}

/**
 * The commands of a machine end when it is stopped or deleted: the error says that, not that the guest does
 * not answer.
 */
async function reasonOf(
  { cache }: Pick<MachineServices, "cache">,
  { tenantId, id }: RunOptions,
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof Refusal && error.code === "guest_unreachable")) return error;
  const machine = await cache.read({ tenantId, id }).catch(() => null);
  if (machine === null) return error;
  const phase = machine === undefined ? "deleted" : phaseOf(machine);
  if (phase !== "stopping" && phase !== "stopped" && phase !== "deleted") return error;
  const what = phase === "deleted" ? "deleted" : "stopped";
  return new Refusal("guest_unreachable", `the command ended with machine ${id}, which was ${what} while it ran`);
}

/**
 * A command of the server itself, in a running machine: it is not counted as activity and starts no machine.
 * null: it did not run, or its result is unknown.
 */
export async function runQuietly(
  services: Pick<MachineServices, "cache" | "context" | "link">,
  options: QuietOptions,
): Promise<ExecExit | null> {
  const { cache, context } = services;
  try {
    const machine = cache.find(options) ?? (await cache.read(options));
    return machine !== undefined && phaseOf(machine) === "running"
      ? await attemptOnce(services, machine, options)
      : null;
  } catch (error) {
    context.log.debug({ machineId: options.id, error }, "a command of the server's own did not run");
    return null;
  }
}

function attemptOnce(
  { cache, context, link }: Pick<MachineServices, "cache" | "context" | "link">,
  machine: MachineRecord,
  { tenantId, command, sink, signal }: QuietOptions,
): Promise<ExecExit> {
  const { start, stdin } = command;
  // What runs in the background has no stream to continue.
  const name = start.isBackground ? {} : { resumeKey: resumeKeyOf(context) };
  const locate = locateFor({ cache }, machine);
  const options = { tenantId, machineId: machine.id, start: { ...start, ...name }, stdin, sink, signal, locate };
  return runOnNode(link, nodeOf(machine), options, context.clock);
}
