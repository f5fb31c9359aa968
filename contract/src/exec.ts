/**
 * Running commands in a machine: exec, code, sessions and the interactive terminal.
 *
 * What happens in the guest is answered with 200 and an exit code: 124 for a timeout, 255 for a program that
 * does not exist. Refusals are for errors outside the guest.
 */
import { empty, endpoint, json, jsonOrStream, stream } from "./endpoint.ts";
import { IMAGE_FAULTS } from "./errors.ts";
import { EXEC_FRAMES_TYPE } from "./exec-frames.ts";
import { EXEC_B64_BYTES_MAX, EXEC_BODY_BYTES_MAX, EXEC_TIMEOUT_MAX_SECONDS } from "./limits.ts";
import { SESSION_ID, TERMINAL_ID } from "./patterns.ts";
import {
  int64,
  nullable,
  oneOf,
  optional,
  PageQuery,
  type Static,
  stringMap,
  text,
  timestamp,
  Type,
} from "./schema.ts";

export const EXEC_OUTPUTS = ["both", "text", "b64"] as const;
export type ExecOutput = (typeof EXEC_OUTPUTS)[number];

export const CommandSpec = Type.Union([text({ minLength: 1 }), Type.Array(text(), { minItems: 1 })], {
  description:
    "a string runs as `sh -lc`; an array is the program and its arguments. The string, or one argument, has less than " +
    "128 KiB, which is the kernel's limit; longer scripts go through stdin, to `sh -l`, or into a file",
  examples: ["uname -a", ["uname", "-a"]],
});

export const MachineCommandRequest = Type.Object({
  command: CommandSpec,
  cwd: optional(text({ maxLength: 4096 })),
  env: optional(stringMap("added to the machine's environment")),
  stdin: optional(Type.String()),
  stream: optional(Type.Boolean({ description: "answer with Server-Sent Events" })),
  timeoutSeconds: optional(int64({ maximum: EXEC_TIMEOUT_MAX_SECONDS, description: "default 600" })),
  background: optional(Type.Boolean({ description: "answer immediately with `pid=<n>` in stdout" })),
  user: optional(text({ maxLength: 256, description: "name or uid, optionally with `:group`; default: the image's" })),
});
export type MachineCommandRequest = Static<typeof MachineCommandRequest>;

const EXACT =
  `base64 of the first ${EXEC_B64_BYTES_MAX / 2 ** 20} MiB, byte for byte; absent with output=text. ` +
  "`exec/stream?output=b64` gives all of it, without a cap";
const CUT =
  "whether the base64 is incomplete: it ends at its cap, or earlier where commands that run at the same " +
  "time have used up the server's memory for all of them; absent with output=text";

export const MachineExecResponse = Type.Object({
  stdout: Type.String({ description: "UTF-8, capped at 1 MiB; empty with output=b64" }),
  stderr: Type.String({ description: "UTF-8, capped at 1 MiB; empty with output=b64" }),
  exitCode: Type.Integer({ format: "int32" }),
  durationMs: int64(),
  machineId: Type.String(),
  stdoutTruncated: Type.Boolean({ description: "whether `stdout` is incomplete" }),
  stderrTruncated: Type.Boolean({ description: "whether `stderr` is incomplete" }),
  stdoutB64: Type.Optional(Type.String({ description: EXACT })),
  stderrB64: Type.Optional(Type.String({ description: EXACT })),
  stdoutB64Truncated: Type.Optional(Type.Boolean({ description: CUT })),
  stderrB64Truncated: Type.Optional(Type.Boolean({ description: CUT })),
});
export type MachineExecResponse = Static<typeof MachineExecResponse>;

/** Accepted languages of `code`, and the interpreter of each. */
export const CODE_LANGUAGES = {
  python: "python",
  javascript: "javascript",
  node: "javascript",
  js: "javascript",
} as const;

export const MachineCodeRequest = Type.Object({
  language: text({
    minLength: 1,
    maxLength: 64,
    description: "`python` or `javascript` (aliases `node`, `js`)",
    examples: ["python"],
  }),
  code: text(),
  cwd: optional(text({ maxLength: 4096 })),
  env: optional(stringMap("added to the machine's environment")),
  timeoutSeconds: optional(int64({ maximum: EXEC_TIMEOUT_MAX_SECONDS })),
});
export type MachineCodeRequest = Static<typeof MachineCodeRequest>;

export const CreateMachineSessionRequest = Type.Object({
  // It is a path segment, and no client sends one that is `.` or `..`.
  id: optional(Type.String({ pattern: SESSION_ID })),
  cwd: optional(text({ maxLength: 4096 })),
  env: optional(stringMap("environment of the session")),
});

export const MachineSessionInfo = Type.Object({
  id: Type.String(),
  machineId: Type.String(),
  status: oneOf(["active"]),
  cwd: nullable(Type.String()),
  env: stringMap("environment of the session"),
  createdAt: timestamp(),
  lastExecAt: nullable(timestamp()),
});

export const ExecQuery = Type.Object({ output: Type.Optional(oneOf(EXEC_OUTPUTS)) });
const EVENT_STREAM = "text/event-stream";
const IN_BODY = "with `stream: true` in the body, the events of `exec/stream`";
const FRAMED =
  `With \`Accept: ${EXEC_FRAMES_TYPE}\` the stream is binary, byte for byte and without a conversion: frames of a kind (one byte), ` +
  "three zero bytes, the payload's length (four bytes, big endian) and the payload. Kinds: 0 keep-alive, 1 stdout, 2 stderr, " +
  '3 exit with `{"exitCode":N}`, 4 error with `{"code":"…","message":"…"}`; skip others.';
const commandBody = {
  kind: "json",
  schema: MachineCommandRequest,
  maxBytes: EXEC_BODY_BYTES_MAX,
  longText: "stdin",
} as const;
const execErrors = [
  "invalid_json",
  "invalid_request",
  "invalid_body",
  "not_found",
  "conflict",
  "quota_exceeded",
  "no_capacity",
  ...IMAGE_FAULTS,
  "guest_unreachable",
  "unavailable",
  "start_failed",
] as const;

const offset = (description: string) => Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description });

export const execEndpoints = {
  exec: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/exec",
    family: "machines",
    summary: "Run a command; starts the machine if it is stopped",
    description: "With `stream: true` the answer is the stream of `exec/stream`.",
    access: ["machine:exec"],
    query: ExecQuery,
    body: commandBody,
    answers: { 200: jsonOrStream(MachineExecResponse, EVENT_STREAM, IN_BODY) },
    errors: execErrors,
  }),
  execStream: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/exec/stream",
    family: "machines",
    summary: "Run a command and stream its output as Server-Sent Events",
    description:
      'Events `stdout` and `stderr` with text, then `exit` with `{"exitCode":N}`, or `error` with a sentence when it is unknown ' +
      "how the command ended. Each `\\n` of the text begins another `data:` line, and a carriage return is kept in the data. " +
      "Readers that follow the standard end lines there: for them `output=text` turns it into a line break, and with " +
      `\`output=b64\` the data is base64, byte for byte. ${FRAMED}`,
    access: ["machine:exec"],
    query: ExecQuery,
    body: commandBody,
    answers: { 200: stream(EVENT_STREAM, `events stdout, stderr, then exit or error; or \`${EXEC_FRAMES_TYPE}\``) },
    errors: execErrors,
    isExtra: true,
  }),
  runCode: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/code",
    family: "machines",
    summary: "Run Python or JavaScript with the image's interpreter",
    access: ["machine:exec"],
    body: { kind: "json", schema: MachineCodeRequest, maxBytes: EXEC_BODY_BYTES_MAX, longText: "code" },
    answers: { 200: json(MachineExecResponse) },
    errors: execErrors,
  }),
  openTerminal: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/exec/interactive",
    family: "machines",
    summary: "An interactive terminal over WebSocket",
    description:
      "The program ends with the connection. With `terminal` it is kept instead for a minute after a connection that was lost, " +
      "and is continued with `offset`, without losing output or input; its messages are described in docs/terminals.md.",
    access: ["machine:exec"],
    query: Type.Object({
      terminal: Type.Optional(
        Type.String({
          pattern: TERMINAL_ID,
          description: "keeps the terminal under this id, which is 32 random hexadecimal digits drawn by the client",
        }),
      ),
      offset: Type.Optional(
        offset(
          "continues the kept terminal after so many bytes of its output; it never begins one, or starts a machine",
        ),
      ),
      cmd: Type.Optional(text({ maxLength: 4096 })),
      command: Type.Optional(text({ maxLength: 4096 })),
      arg: Type.Optional(
        Type.Array(text({ maxLength: 4096 }), { maxItems: 256, description: "an argument of `cmd`; repeat for more" }),
      ),
      cwd: Type.Optional(text({ maxLength: 4096 })),
      user: Type.Optional(text({ maxLength: 256, description: "as in exec" })),
      env: Type.Optional(
        Type.Array(text({ maxLength: 8192 }), { maxItems: 256, description: "`NAME=value`; repeat for more" }),
      ),
      cols: Type.Optional(
        Type.Integer({ minimum: 0, maximum: 10_000, description: "0, as of a terminal whose size is not known: 80" }),
      ),
      rows: Type.Optional(
        Type.Integer({ minimum: 0, maximum: 10_000, description: "0, as of a terminal whose size is not known: 24" }),
      ),
      access_token: Type.Optional(Type.String()),
    }),
    answers: { 101: empty("switching to WebSocket") },
    errors: execErrors.filter((code) => code !== "invalid_json"),
    isUpgrade: true,
  }),
  watchTerminal: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/exec/interactive/{terminal_id}",
    family: "machines",
    summary: "Watch a kept terminal over WebSocket",
    description:
      "Shows the output of a terminal that was opened with `terminal`, from what is kept of it on. What a reader sends has no effect. " +
      "A reader that is slow misses output, never slows the terminal, and does not count as use of the machine.",
    access: ["machine:read"],
    query: Type.Object({
      offset: Type.Optional(offset("begins after so many bytes of the output, if they are still kept; default 0")),
      access_token: Type.Optional(Type.String()),
    }),
    answers: { 101: empty("switching to WebSocket") },
    errors: ["invalid_request", "invalid_body", "not_found", "unavailable"],
    isUpgrade: true,
    isExtra: true,
  }),
  listSessions: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/sessions",
    family: "machines",
    summary: "List the machine's sessions",
    access: ["machine:read"],
    query: PageQuery,
    answers: { 200: json(Type.Array(MachineSessionInfo)) },
    errors: ["invalid_body", "not_found"],
  }),
  createSession: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/sessions",
    family: "machines",
    summary: "Create a session: a working directory and environment kept between execs",
    access: ["machine:exec"],
    body: { kind: "json", schema: CreateMachineSessionRequest, isOptional: true },
    answers: { 200: json(MachineSessionInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict", "quota_exceeded"],
  }),
  deleteSession: endpoint({
    method: "DELETE",
    path: "/v1/machines/{id}/sessions/{session_id}",
    family: "machines",
    summary: "Delete a session",
    access: ["machine:exec"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
  execInSession: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/sessions/{session_id}/exec",
    family: "machines",
    summary: "Run a command in a session",
    description:
      "The working directory and exported variables after a string command are those of the next one. With `stream: true` the answer is the stream of `exec/stream`.",
    access: ["machine:exec"],
    query: ExecQuery,
    body: commandBody,
    answers: { 200: jsonOrStream(MachineExecResponse, EVENT_STREAM, IN_BODY) },
    errors: execErrors,
  }),
} as const;
