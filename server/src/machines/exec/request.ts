/**
 * Converts the body of an exec to the request for the node. Pure.
 *
 * A string runs as `sh -lc`; an array is the program and its arguments. The default time limit is
 * EXEC_TIMEOUT_DEFAULT_SECONDS; 0 selects the longest one; a command in the background has none, and no
 * input.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { MachineCommandRequest } from "@flotilla/contract/exec";
import {
  EXEC_STDIN_BYTES_MAX,
  EXEC_TIMEOUT_DEFAULT_SECONDS,
  EXEC_TIMEOUT_MAX_SECONDS,
} from "@flotilla/contract/limits";
import type { ExecStart } from "@flotilla/contract/link/link";
import { checkArguments, checkEnvironment } from "../environment.ts";

export interface Command {
  readonly start: ExecStart;
  readonly stdin: Buffer | null;
}

/** Long input comes as bytes. */
export type CommandRequest = Omit<MachineCommandRequest, "stdin"> & { readonly stdin?: string | Buffer | null };

export function commandOf(request: CommandRequest): Command {
  const { command } = request;
  const argv = typeof command === "string" ? shellCommand("-lc", command) : command;
  const isBackground = request.background ?? false;
  const stdin = stdinOf(request.stdin);
  if (isBackground && stdin !== null && stdin.byteLength > 0) {
    const why =
      "a command in the background gets no input; leave out stdin, or write it to a file that the command reads";
    throw new Refusal("invalid_request", why);
  }
  return {
    start: {
      argv: checkArguments(argv, "write long scripts to a file, or send them through stdin"),
      cwd: request.cwd === null || request.cwd === undefined || request.cwd === "" ? null : request.cwd,
      env: checkEnvironment(request.env),
      user: request.user === null || request.user === undefined || request.user === "" ? null : request.user,
      timeoutMs: isBackground ? null : timeoutSeconds(request.timeoutSeconds) * 1000,
      isBackground,
      hasStdin: stdin !== null,
      terminal: null,
    },
    stdin,
  };
}

/** The shell would read a line that begins like an option as one. */
export const shellCommand = (flags: "-c" | "-lc", line: string): readonly string[] =>
  /^[-+]/.test(line) ? ["sh", flags, "--", line] : ["sh", flags, line];

function timeoutSeconds(requested: number | null | undefined): number {
  if (requested === null || requested === undefined) return EXEC_TIMEOUT_DEFAULT_SECONDS;
  return requested === 0 ? EXEC_TIMEOUT_MAX_SECONDS : requested;
}

function stdinOf(text: string | Buffer | null | undefined): Buffer | null {
  if (text === null || text === undefined) return null;
  const bytes = typeof text === "string" ? Buffer.from(text, "utf8") : text;
  if (bytes.byteLength > EXEC_STDIN_BYTES_MAX) {
    const why = `stdin is larger than the ${EXEC_STDIN_BYTES_MAX} bytes a command may be sent; upload it as a file`;
    throw new Refusal("body_too_large", why);
  }
  return bytes;
}
