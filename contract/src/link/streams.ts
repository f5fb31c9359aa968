/**
 * Messages of a command in a machine.
 */
import { ENV_BYTES_MAX, EXEC_TIMEOUT_MAX_SECONDS } from "../limits.ts";
import { argv, PATH_CHARACTERS_MAX } from "./machines.ts";
import { count, environment, flag, matching, type Message, nullable, Type, text, whole } from "./vocabulary.ts";

const SIDE_MAX = 10_000;
const SIZE_MAX = Number.MAX_SAFE_INTEGER;

const resumeKey = () => matching(/^[0-9a-f]{32}$/);

/** The size of a terminal, in characters. */
export const TerminalSize = Type.Object({ cols: whole(1, SIDE_MAX), rows: whole(1, SIDE_MAX) });
export type TerminalSize = Message<typeof TerminalSize>;

/** The payload of a signal frame. */
export const SignalRequest = Type.Object({ signal: whole(1, 64) });
export type SignalRequest = Message<typeof SignalRequest>;

/** The first frame of an exec. Sizes and names were checked by the server; the node checks them again. */
export const ExecStart = Type.Object({
  argv: argv(),
  cwd: nullable(text(PATH_CHARACTERS_MAX)),
  env: environment(ENV_BYTES_MAX),
  user: nullable(text(256)),
  /** null: no limit. */
  timeoutMs: nullable(whole(1, EXEC_TIMEOUT_MAX_SECONDS * 1000)),
  /** Answer with the pid as soon as the command runs, and let it live on. */
  isBackground: flag(),
  hasStdin: flag(),
  terminal: nullable(TerminalSize),
  /**
   * The server resumes the command with it after a restart of the node's agent. Without it the command ends
   * then.
   */
  resumeKey: Type.Optional(resumeKey()),
});
export type ExecStart = Message<typeof ExecStart>;

/** The first frame of an exec that began through an earlier agent of the node. */
export const ExecResume = Type.Object({
  resumeKey: resumeKey(),
  /** How much of each output the server has received. */
  stdoutBytes: whole(0, SIZE_MAX),
  stderrBytes: whole(0, SIZE_MAX),
  /** Since the command was started. */
  elapsedMs: whole(0, SIZE_MAX),
  /** Time limit of the whole command; null: no limit. */
  timeoutMs: nullable(whole(1, EXEC_TIMEOUT_MAX_SECONDS * 1000)),
  hasStdin: flag(),
  /** Its present size. */
  terminal: nullable(TerminalSize),
});
export type ExecResume = Message<typeof ExecResume>;

/** The first frame of a reader of a kept terminal, which can send nothing else. */
export const TerminalWatch = Type.Object({
  resumeKey: resumeKey(),
  /** How much of its output the reader has; what is not kept any more is left out. */
  stdoutBytes: whole(0, SIZE_MAX),
});
export type TerminalWatch = Message<typeof TerminalWatch>;

/** The first frame of the answer: how much of its input the guest has received. */
export const ExecResumed = Type.Object({
  stdinBytes: whole(0, SIZE_MAX),
  /** Where the output of a kept terminal that follows begins. Absent: nothing is missing before it. */
  stdoutBytes: Type.Optional(whole(0, SIZE_MAX)),
  /** Whether the guest keeps the connection when the node's agent is lost. */
  isKept: Type.Optional(flag()),
});
export type ExecResumed = Message<typeof ExecResumed>;

/**
 * The first frame of a connection to a port of the guest. An ExecResume instead resumes one. The node answers
 * ExecResumed when it is established, and again as the guest has received more. An exit of 0 means that the
 * guest ended it in order.
 */
export const ConnectionStart = Type.Object({ port: whole(1, 65_535), resumeKey: resumeKey() });
export type ConnectionStart = Message<typeof ConnectionStart>;

/** How much of the output the server has received of a connection, or the client of a kept terminal. */
export const Taken = Type.Object({ stdoutBytes: whole(0, SIZE_MAX) });
export type Taken = Message<typeof Taken>;

/** The last frame of an exec that ran. */
export const ExecExit = Type.Object({
  exitCode: whole(-2_147_483_648, 4_294_967_295),
  /** Measured by the node from the guest's start of the command to its exit. */
  durationMs: count(SIZE_MAX),
  hasTimedOut: flag(),
  /** With `isBackground`. */
  pid: nullable(count(SIZE_MAX)),
});
export type ExecExit = Message<typeof ExecExit>;
