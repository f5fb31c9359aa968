/**
 * Tools of the AI SDK for one machine of Flotilla:
 * `generateText({ model, prompt, tools: machineTools(flotilla, machine.id) })`.
 *
 * Always:
 * - What a command did is a result, with its exit code, whatever that is. A refusal of the API is an error,
 *   which the AI SDK shows to the model.
 * - A result has at most `outputCharacters` of each output: the beginning and the end of what is longer, and
 *   how much was left out. More is not held.
 * - An aborted call ends its command in the machine.
 */
import type { Flotilla, MachineCommandRequest } from "@flotilla/sdk";
import { tool } from "ai";
import { z } from "zod";
import { Excerpt } from "./excerpt.ts";

export interface MachineToolOptions {
  /** The most characters of each output, or of a file, that a result has; default: 16 000. */
  readonly outputCharacters?: number;
  /** The most that a command takes which names no timeout; default: 600. */
  readonly timeoutSeconds?: number;
}

/** The result of a command. */
export interface CommandOutcome {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

const OUTPUT_CHARACTERS_DEFAULT = 16_000;
const TIMEOUT_SECONDS_DEFAULT = 600;
const TIMEOUT_SECONDS_MAX = 86_400;
const CODE_CHARACTERS_MAX = 4 * 1024 * 1024;

const path = z.string().min(1).max(4096).describe("an absolute path");
const timeout = z.number().int().min(1).max(TIMEOUT_SECONDS_MAX).optional();

/** Tools that act on the machine, which the first of them starts if it is stopped. */
export function machineTools(flotilla: Flotilla, machineId: string, options: MachineToolOptions = {}) {
  const { outputCharacters = OUTPUT_CHARACTERS_DEFAULT, timeoutSeconds = TIMEOUT_SECONDS_DEFAULT } = options;
  const use = { flotilla, machineId, outputCharacters, timeoutSeconds };
  return { ...commandTools(use), ...fileTools(use) };
}

interface Use {
  readonly flotilla: Flotilla;
  readonly machineId: string;
  readonly outputCharacters: number;
  readonly timeoutSeconds: number;
}

function commandTools(use: Use) {
  return {
    runCommand: tool({
      description:
        "Runs a line of the shell in the machine and waits for its end. A command that fails is a result with its " +
        "exit code.",
      inputSchema: z.object({
        command: z.string().min(1).describe("a line for `sh`"),
        cwd: z.string().max(4096).optional(),
        stdin: z.string().max(CODE_CHARACTERS_MAX).optional(),
        timeoutSeconds: timeout,
      }),
      execute: (input, { abortSignal }) => run(use, input, abortSignal),
    }),
    runCode: tool({
      description: "Runs Python or JavaScript with the interpreter of the machine's image, and waits for its end.",
      inputSchema: z.object({
        language: z.enum(["python", "javascript"]),
        code: z.string().min(1).max(CODE_CHARACTERS_MAX),
        timeoutSeconds: timeout,
      }),
      execute: ({ language, code, timeoutSeconds }, { abortSignal }) => {
        const command = language === "python" ? ["python3", "-"] : ["node", "-"];
        return run(use, { command, stdin: code, timeoutSeconds }, abortSignal);
      },
    }),
  };
}

function fileTools({ flotilla, machineId, outputCharacters }: Use) {
  return {
    readFile: tool({
      description: "Reads a text file of the machine. Of a long one the beginning and the end are shown.",
      inputSchema: z.object({ path }),
      execute: async (input, { abortSignal: signal }): Promise<string> => {
        const answer = await flotilla.readFile(machineId, { query: { path: input.path }, signal });
        const excerpt = new Excerpt(outputCharacters);
        for await (const bytes of bytesOf(answer)) excerpt.add(bytes);
        return excerpt.show();
      },
    }),
    writeFile: tool({
      description: "Writes a text file of the machine, with what is given instead of what it had.",
      inputSchema: z.object({ path, content: z.string().max(CODE_CHARACTERS_MAX) }),
      execute: async (input, { abortSignal: signal }): Promise<string> => {
        await flotilla.writeFile(machineId, input.content, { query: { path: input.path }, signal });
        return "written";
      },
    }),
    listFiles: tool({
      description: "Lists a directory of the machine.",
      inputSchema: z.object({ path }),
      execute: async (input, { abortSignal: signal }): Promise<string> => {
        const answer = await flotilla.readFile(machineId, { query: { path: input.path, list: true }, signal });
        const excerpt = new Excerpt(outputCharacters);
        for await (const bytes of bytesOf(answer)) excerpt.add(bytes);
        return excerpt.show();
      },
    }),
  };
}

async function run(
  { flotilla, machineId, outputCharacters, timeoutSeconds }: Use,
  request: MachineCommandRequest,
  signal: AbortSignal | undefined,
): Promise<CommandOutcome> {
  const stdout = new Excerpt(outputCharacters);
  const stderr = new Excerpt(outputCharacters);
  let exitCode = -1;
  const body = { ...request, timeoutSeconds: request.timeoutSeconds ?? timeoutSeconds };
  for await (const event of await flotilla.streamExec(machineId, body, { signal })) {
    if (event.kind === "exit") ({ exitCode } = event);
    else (event.kind === "stdout" ? stdout : stderr).add(event.bytes);
  }
  return { exitCode, stdout: stdout.show(), stderr: stderr.show() };
}

/** Ending the iteration early ends the answer. */
async function* bytesOf({ body }: Response): AsyncGenerator<Uint8Array, void, undefined> {
  if (body === null) return;
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
