/**
 * Runs a command in a session: with the state that earlier commands left, and stores the state that it
 * leaves.
 *
 * Always:
 * - The change of a command is stored before its end is reported, so the next command finds it.
 * - A change that cannot be read or stored is dropped; the command has run in any case.
 *
 * script.ts says how the two commands work together.
 */
import { Pieces } from "@flotilla/base/pieces";
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit } from "@flotilla/contract/link/link";
import type { OutputSink } from "../../link/exec-frames.ts";
import { type CommandRequest, commandOf } from "../exec/request.ts";
import { runCommand, runQuietly } from "../exec/run.ts";
import type { InMachineOptions } from "../running.ts";
import type { MachineServices } from "../services.ts";
import { changeIn, programArgv, READING_BYTES_MAX, readingArgv, shellArgv, type SessionChange } from "./script.ts";
import { findSession, keepChange, SESSION_BYTES_MAX, type SessionRecord } from "./store.ts";

const READING_SECONDS_MAX = 10;

export interface SessionRunOptions extends InMachineOptions {
  readonly sessionId: string;
  readonly request: CommandRequest;
}

export const sessionNotFound = (id: string, sessionId: string): Refusal =>
  new Refusal("not_found", `machine ${id} has no session ${sessionId}, or there is no such machine`);

export const overBytesText = (id: string): string =>
  `the sessions of machine ${id} would hold more than ${SESSION_BYTES_MAX} bytes of variables and directories together; ` +
  "delete sessions that are not used, or keep large values in files";

export async function runInSession(
  services: MachineServices,
  options: SessionRunOptions,
  sink: OutputSink,
): Promise<ExecExit> {
  const { context } = services;
  const { tenantId, id, sessionId, request } = options;
  const found = await findSession(context.db, { tenantId, machineId: id, sessionId });
  if (found === undefined) throw sessionNotFound(id, sessionId);
  const session = withSet(found, request.env ?? {});
  const hasOwnCwd = typeof request.cwd === "string" && request.cwd !== "";
  const isLine = typeof request.command === "string";
  const isKept = isLine && request.background !== true;
  const statePath = isKept ? `/tmp/.flotilla-session-${context.randomBytes(16).toString("hex")}` : null;
  const given = sessionRequest(session, request, { statePath, hasOwnCwd });
  const exit = await runCommand(services, { ...options, command: commandOf(given), sink });
  const change =
    statePath === null ? null : await readChange(services, options, session, { ...given, statePath, hasOwnCwd });
  const note = await keep(services, session, change);
  if (note !== null) await sink.onOutput("stderr", Buffer.from(`session: ${note}\n`));
  return exit;
}

/** What the request sets is set for its command, although an earlier one has unset it. */
const withSet = (session: SessionRecord, env: Readonly<Record<string, string>>): SessionRecord => ({
  ...session,
  unsetNames: session.unsetNames.filter((name) => !Object.hasOwn(env, name)),
});

/** A note for the command's owner, or null. The command has run, so there is no refusal. */
async function keep(
  { context }: Pick<MachineServices, "context">,
  session: SessionRecord,
  change: SessionChange | "too large" | null,
): Promise<string | null> {
  try {
    const outcome = await keepChange(context, session, change === "too large" ? null : change);
    if (outcome === "overBytes")
      return `what this command changed is not kept, because ${overBytesText(session.machineId)}`;
    if (outcome === "kept" && change !== "too large") return null;
    return "the environment has become too large, and was not kept";
  } catch (error) {
    context.log.warn(
      { machineId: session.machineId, error },
      "what a command changed in its session could not be kept",
    );
    return "what the command changed could not be kept, the database does not answer";
  }
}

/** The request without a session. */
function sessionRequest(
  session: SessionRecord,
  request: CommandRequest,
  options: { readonly statePath: string | null; readonly hasOwnCwd: boolean },
): CommandRequest {
  const { command } = request;
  const env = { ...session.env, ...request.env };
  if (typeof command === "string") return { ...request, env, command: [...shellArgv(command, session, options)] };
  const cwd = options.hasOwnCwd ? request.cwd : session.cwd;
  return { ...request, env, cwd: cwd ?? null, command: [...programArgv(command, session)] };
}

async function readChange(
  services: Pick<MachineServices, "cache" | "context" | "link">,
  { tenantId, id, signal }: SessionRunOptions,
  session: SessionRecord,
  given: CommandRequest & { readonly statePath: string; readonly hasOwnCwd: boolean },
): Promise<SessionChange | "too large" | null> {
  const { statePath, hasOwnCwd, cwd = null, env = null, user = null } = given;
  const output = new Bounded();
  const command = commandOf({
    command: [...readingArgv(statePath)],
    cwd,
    env,
    user,
    timeoutSeconds: READING_SECONDS_MAX,
  });
  const exit = await runQuietly(services, { tenantId, id, command, sink: output, signal });
  if (exit === null) return null;
  if (output.isCut) return "too large";
  return changeIn(Buffer.concat(output.pieces.all()), session, hasOwnCwd);
}

/** Output up to a bound; longer output is not an environment. */
class Bounded implements OutputSink {
  readonly pieces = new Pieces(READING_BYTES_MAX);
  isCut = false;
  #bytes = 0;

  onOutput(stream: "stdout" | "stderr", chunk: Uint8Array): void {
    if (stream === "stderr" || this.isCut) return;
    this.#bytes += chunk.byteLength;
    this.isCut = this.#bytes > READING_BYTES_MAX;
    if (!this.isCut) this.pieces.add(chunk);
  }
}
