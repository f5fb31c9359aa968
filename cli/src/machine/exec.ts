/**
 * `flotilla machine exec NAME -- COMMAND…`: runs a command in a machine and ends with its exit code.
 *
 * Always:
 * - The command's output is passed on byte for byte, stdout and stderr apart, as it is written and no faster
 *   than it is read.
 * - The command's exit code is this program's exit code.
 * - Input is passed on when it is a pipe or a file, and not when it is a terminal or absent, so that a script
 *   without input does not wait for one.
 *
 * A single argument is a line for the machine's shell, several are a program and its arguments: quotes
 * decide, as with `ssh` and `watch`, and `'ls / | wc -l'` does what it says. With --no-shell, which images
 * without a shell need, one argument is a program too. With --tty it runs in a terminal (terminal.ts).
 */
import { fstatSync } from "node:fs";
import { renderSpan } from "@flotilla/base/span";
import {
  type CallOptions,
  type ExecEvent,
  type ExecQuery,
  type Flotilla,
  FlotillaError,
  type MachineCommandRequest,
  type MachineExecResponse,
} from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure, usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import { findMachine, findMachineId } from "./find.ts";
import { joinTerminal } from "./terminal.ts";

export interface ExecOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly user?: string;
  readonly timeout?: number;
  readonly background?: boolean;
  /** False with --no-stdin. */
  readonly stdin?: boolean;
  readonly interactive?: boolean;
  readonly tty?: boolean;
  /** False with --no-shell. */
  readonly shell?: boolean;
  /** Default: true, except with --json or --background. */
  readonly stream?: boolean;
  /** The session's id; its first use creates it. */
  readonly session?: string;
}

/** The API's limit; a larger input is refused before it is sent. */
const STDIN_BYTES_MAX = 16 * 1024 * 1024;

/** The API's. */
const TIMEOUT_DEFAULT_SECONDS = 600;
const EXIT_TIMEOUT = 124;

/** What is said of a line in a machine without a shell. */
const NO_SHELL = /^executable file 'sh' not found/;
const NO_SHELL_BYTES = 40;

export async function run(call: Call, operands: readonly string[], options: ExecOptions): Promise<number> {
  const [reference = "", ...command] = operands;
  if (options.tty === true) return inTerminal(call, reference, command, options);
  const flotilla = call.flotilla(nodeFetch);
  const stdin = options.stdin === false ? null : await pipedInput(call);
  const id = await findMachineId(flotilla, reference);
  const request = execRequest(command, options, stdin);
  const isStreamed = options.stream ?? !(call.output.isJson || options.background === true);
  const send = senderOf(flotilla, id, options.session);
  const startedAt = call.world.clock.monotonic();
  const exitCode = await (isStreamed ? stream : runToEnd)(call, send, request);
  const limit = options.timeout ?? TIMEOUT_DEFAULT_SECONDS;
  const isOver = limit > 0 && call.world.clock.monotonic() - startedAt >= limit * 1000;
  // A command may also end with this code by itself.
  if (exitCode === EXIT_TIMEOUT && isOver && options.background !== true)
    call.output.note(
      `flotilla: the command was ended after ${renderSpan(limit * 1000)}; --timeout allows another time`,
    );
  return exitCode & 0xff;
}

/** One argument is a line, unless it is to be a program. */
const isLine = (command: readonly string[], { shell = true }: ExecOptions): boolean => command.length === 1 && shell;

function noteMissingShell({ output }: Call, { command }: MachineCommandRequest, stderr: string): void {
  if (typeof command === "string" && NO_SHELL.test(stderr))
    output.note(
      "flotilla: a single argument is a line for the machine's shell, and its image has none: add --no-shell",
    );
}

interface Sender {
  exec(request: MachineCommandRequest, options: CallOptions<ExecQuery>): Promise<MachineExecResponse>;
  streamExec(request: MachineCommandRequest): Promise<AsyncIterable<ExecEvent>>;
}

function senderOf(flotilla: Flotilla, id: string, session: string | undefined): Sender {
  if (session === undefined)
    return {
      exec: (request, options) => flotilla.exec(id, request, options),
      streamExec: (request) => flotilla.streamExec(id, request),
    };
  const inSession = async <T>(send: () => Promise<T>): Promise<T> => {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof FlotillaError && error.status === 404)) throw error;
    }
    await flotilla.createSession(id, { id: session }).catch((error: unknown) => {
      // Another call created it first.
      if (!(error instanceof FlotillaError && error.status === 409)) throw error;
    });
    return await send();
  };
  return {
    exec: (request, options) => inSession(() => flotilla.execInSession(id, session, request, options)),
    streamExec: (request) => inSession(() => flotilla.streamExecInSession(id, session, request)),
  };
}

/** With --tty: like `machine shell`, for any command. */
async function inTerminal(call: Call, reference: string, command: readonly string[], options: ExecOptions) {
  const { background, timeout, session } = options;
  if (background === true || timeout !== undefined || session !== undefined || call.output.isJson) {
    throw usage(
      "--tty excludes --background, --timeout, --session and --json",
      "a terminal ends with its command, within an hour",
    );
  }
  const machine = await findMachine(call.flotilla(), reference);
  const [program = "", ...operands] = isLine(command, options) ? ["/bin/sh", "-lc", "--", ...command] : command;
  return joinTerminal(call, machine, {
    cmd: program,
    arg: operands,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.env === undefined ? {} : { env: Object.entries(options.env).map((entry) => entry.join("=")) }),
  });
}

/** Output as it arrives; with --json one line of JSON for each piece. */
async function stream(call: Call, send: Sender, request: MachineCommandRequest): Promise<number> {
  let exitCode = 0;
  let lastError = "";
  for await (const event of await send.streamExec(request)) {
    if (event.kind === "exit") exitCode = event.exitCode;
    if (event.kind === "stderr") lastError = Buffer.from(event.bytes.subarray(0, NO_SHELL_BYTES)).toString();
    const isOutput = event.kind !== "exit";
    if (call.output.isJson) {
      const fact = isOutput ? { dataB64: Buffer.from(event.bytes).toString("base64") } : { exitCode };
      await call.output.jsonLine({ event: event.kind, ...fact });
    } else if (isOutput) await call.output.flow(event.kind === "stdout" ? "output" : "errors", event.bytes);
  }
  noteMissingShell(call, request, lastError);
  return exitCode;
}

async function runToEnd(call: Call, send: Sender, request: MachineCommandRequest): Promise<number> {
  const query = call.output.isJson ? undefined : ({ output: "b64" } as const);
  const answer = await send.exec(request, { query });
  const exitCode = showAnswer(call, answer);
  noteMissingShell(call, request, bytesOf(answer.stderrB64, answer.stderr).toString());
  return exitCode;
}

/** Prints the whole answer, with --json as it is. Returns the command's exit code. */
export function showAnswer({ output }: Call, answer: MachineExecResponse): number {
  if (output.isJson) output.json(answer);
  else {
    output.bytes("output", bytesOf(answer.stdoutB64, answer.stdout));
    output.bytes("errors", bytesOf(answer.stderrB64, answer.stderr));
    if (answer.stdoutTruncated || answer.stderrTruncated) {
      output.note("flotilla: the output exceeded the limit and was truncated");
    }
  }
  return answer.exitCode;
}

/** The request's body: only the given options. Pure. */
export function execRequest(
  command: readonly string[],
  options: ExecOptions,
  stdin: string | null,
): MachineCommandRequest {
  const [line = ""] = command;
  return {
    command: isLine(command, options) ? line : command,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env }),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.timeout === undefined ? {} : { timeoutSeconds: options.timeout }),
    ...(options.background === undefined ? {} : { background: options.background }),
    ...(stdin === null ? {} : { stdin }),
  };
}

const bytesOf = (b64: string | undefined, text: string): Buffer =>
  b64 === undefined ? Buffer.from(text) : Buffer.from(b64, "base64");

/** Piped input as text; null when input is a terminal, a device such as /dev/null, or closed. */
async function pipedInput(call: Call): Promise<string | null> {
  if (!isPipeOrFile(call.world.streams.input.fd)) return null;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of call.world.streams.input) {
    chunks.push(chunk as Buffer);
    size += (chunk as Buffer).length;
    if (size > STDIN_BYTES_MAX) throw new Failure("the input is longer than the 16 MiB that exec accepts");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new Failure(
      "the input is not UTF-8 text, and exec accepts only text",
      "encode it, such as: base64 FILE | flotilla machine exec NAME 'base64 -d > FILE'",
    );
  }
}

function isPipeOrFile(descriptor: number): boolean {
  try {
    const stat = fstatSync(descriptor);
    return stat.isFIFO() || stat.isFile() || stat.isSocket();
  } catch {
    return false;
  }
}
