/**
 * Tools that run commands and code in machines.
 *
 * Always:
 * - What the command did is a result, with its exit code, whatever that is.
 * - At most KEPT_BYTES of a command's output are held. A result shows the beginning and the end of what is
 *   long; what was kept is then in a file of the machine, which the result names.
 * - A cancelled call ends the command in the machine.
 */
import type { ExecEvent, Flotilla, MachineCommandRequest } from "@flotilla/sdk";
import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import { findMachine } from "../../machine/find.ts";
import { may } from "../access.ts";
import { Captured, type Shown } from "../captured.ts";
import { machineInput, type Tool, tool, type Use } from "../tool.ts";

/** The API's. */
const TIMEOUT_MAX_SECONDS = 86_400;
const STDIN_CHARACTERS_MAX = 16 * 1024 * 1024;
const PROGRESS_BYTES = 64 * 1024;

const settings = {
  machine: machineInput,
  cwd: z.string().max(4096).optional(),
  env: z.record(z.string(), z.string()).optional().describe("added to the machine's environment"),
  timeoutSeconds: z.number().int().min(1).max(TIMEOUT_MAX_SECONDS).default(600),
};

const runCommand = tool({
  name: "run_command",
  title: "Run a command",
  description:
    "Runs a command in a machine, which is started if it is stopped, and waits for its end. A string is a line for " +
    "the machine's shell, a list a program and its arguments. A command that fails is a result with its exit code.",
  needs: ["machine:exec", "machine:read"],
  input: z.object({
    ...settings,
    command: z.union([z.string().min(1), z.array(z.string()).min(1).max(1024)]),
    stdin: z.string().max(STDIN_CHARACTERS_MAX).optional(),
    user: z.string().max(256).optional(),
    background: z.boolean().default(false).describe("answer at once with its process id, and leave it running"),
  }),
  effect: "makes",
  run: async ({ machine, background, ...request }, use) => {
    const { flotilla } = use.session;
    const { id } = await ready(machine, use);
    if (!background) return run(id, request, use);
    const { stdout } = await flotilla.exec(id, { ...request, background }, { signal: use.signal });
    return { content: [{ type: "text", text: stdout }], structuredContent: { background: true, stdout } };
  },
});

const runCode = tool({
  name: "run_code",
  title: "Run code",
  description: "Runs Python or JavaScript with the interpreter of the machine's image, and waits for its end.",
  needs: ["machine:exec", "machine:read"],
  input: z.object({
    ...settings,
    language: z.enum(["python", "javascript"]),
    code: z.string().min(1).max(STDIN_CHARACTERS_MAX),
  }),
  effect: "makes",
  run: async ({ machine, language, code, ...request }, use) => {
    const { id } = await ready(machine, use);
    const { flotilla } = use.session;
    const { exitCode, ...answer } = await flotilla.runCode(id, { ...request, language, code }, { signal: use.signal });
    const [stdout, stderr] = [new Captured(), new Captured()];
    stdout.add(Buffer.from(answer.stdout));
    stderr.add(Buffer.from(answer.stderr));
    const result = await shownResult(id, exitCode, { stdout, stderr }, use);
    if (!answer.stdoutTruncated && !answer.stderrTruncated) return result;
    const note = "[more than 1 MiB of output: the rest is nowhere; write it to a file to have it]";
    return { ...result, content: [...result.content, { type: "text", text: note }] };
  },
});

async function ready(machine: string, { session }: Use): Promise<{ readonly id: string }> {
  // A command starts a stopped machine.
  await session.common.ceilings.starting(session);
  return findMachine(session.flotilla, machine);
}

async function run(id: string, request: MachineCommandRequest, use: Use): Promise<CallToolResult> {
  const stdout = new Captured();
  const stderr = new Captured();
  let said = 0;
  let exitCode = 0;
  for await (const event of await begin(use.session.flotilla, id, request, use.signal)) {
    if (event.kind === "exit") exitCode = event.exitCode;
    else (event.kind === "stdout" ? stdout : stderr).add(event.bytes);
    const bytes = stdout.bytes + stderr.bytes;
    if (bytes - said < PROGRESS_BYTES && said > 0) continue;
    said = bytes;
    use.progress(bytes, `${bytes} bytes of output`);
  }
  return shownResult(id, exitCode, { stdout, stderr }, use);
}

async function shownResult(
  id: string,
  exitCode: number,
  { stdout, stderr }: { readonly stdout: Captured; readonly stderr: Captured },
  use: Use,
): Promise<CallToolResult> {
  const shown = { stdout: await shownOf(id, "stdout", stdout, use), stderr: await shownOf(id, "stderr", stderr, use) };
  return resultOf(exitCode, shown);
}

const begin = (
  flotilla: Flotilla,
  id: string,
  request: MachineCommandRequest,
  signal: AbortSignal,
): Promise<AsyncIterable<ExecEvent>> => flotilla.streamExec(id, request, { signal });

/** What is too long to be shown is put into a file of the machine. */
async function shownOf(id: string, name: string, captured: Captured, { session, signal }: Use): Promise<Shown> {
  if (!captured.isLong) return captured.show("");
  if (!may(session, "machine:files")) return captured.show("the key may not keep it in a file (machine:files)");
  const path = `/tmp/flotilla-${crypto.randomUUID()}.${name}`;
  try {
    await session.flotilla.putFileAt(id, path, captured.kept(), { signal });
  } catch (error) {
    if (signal.aborted) throw error;
    return captured.show("it could not be kept in a file of the machine");
  }
  const all = captured.isWhole ? "all of it is" : `its first ${captured.kept().byteLength} bytes are`;
  return captured.show(`${all} in ${path} of the machine, which read_file reads`, path);
}

/** Pure. */
function resultOf(exitCode: number, { stdout, stderr }: { stdout: Shown; stderr: Shown }): CallToolResult {
  const parts = [
    `exit code ${exitCode}`,
    ...(stdout.text === "" ? [] : [`stdout:\n${stdout.text}`]),
    ...(stderr.text === "" ? [] : [`stderr:\n${stderr.text}`]),
  ];
  return {
    content: parts.map((part) => ({ type: "text" as const, text: part })),
    structuredContent: {
      exitCode,
      stdout: stdout.text,
      stderr: stderr.text,
      stdoutBytes: stdout.bytes,
      stderrBytes: stderr.bytes,
      ...(stdout.path === undefined ? {} : { stdoutPath: stdout.path }),
      ...(stderr.path === undefined ? {} : { stderrPath: stderr.path }),
    },
  };
}

export const execTools: readonly Tool[] = [runCommand, runCode];
