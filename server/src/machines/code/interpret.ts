/**
 * Runs Python or JavaScript with an interpreter of the machine's image.
 *
 * The code is the interpreter's standard input (`python3 -`): it needs no quoting, no shell, no writable
 * directory, and may be larger than an argument. Both interpreters read all of it before they run it, so the
 * script's own input is empty.
 *
 * Always: the program runs once. The guest agent's text for a missing program shows, before anything ran,
 * that the image does not have an interpreter; then the interpreter's other name is tried.
 */
import { Refusal } from "@flotilla/contract/errors";
import { CODE_LANGUAGES, type MachineCodeRequest, type MachineExecResponse } from "@flotilla/contract/exec";
import { EXIT_CODE_NOT_FOUND } from "@flotilla/contract/limits";
import { type Command, commandOf } from "../exec/request.ts";

const PROGRAMS = { python: ["python3", "python"], javascript: ["node", "nodejs"] } as const;
/** Images that have one, for the text. */
const IMAGES = { python: "python:3-slim", javascript: "node:22-slim" } as const;
type Language = keyof typeof PROGRAMS;

/** Long code is passed as bytes. */
export type CodeRequest = Omit<MachineCodeRequest, "code"> & { readonly code: string | Buffer };

/**
 * The answer of the first interpreter found, else one that says that there is none. Throws a Refusal for an
 * unknown language.
 */
export async function interpret(
  request: CodeRequest,
  run: (command: Command) => Promise<MachineExecResponse>,
): Promise<MachineExecResponse> {
  const language = languageOf(request.language);
  const { code, cwd = null, env = null, timeoutSeconds = null } = request;
  const [first, second] = PROGRAMS[language];
  const runWith = (program: string) =>
    run(commandOf({ command: [program, "-"], cwd, env, timeoutSeconds, stdin: code }));
  const answer = await runWith(first);
  if (!isMissing(answer, first)) return answer;
  const other = await runWith(second);
  if (!isMissing(other, second)) return other;
  const stderr = `the code did not run: the machine's image has no ${language} interpreter, neither ${first} nor ${second} is in its $PATH; create the machine from an image that has one, such as ${IMAGES[language]}\n`;
  return { ...other, stderr, stderrB64: Buffer.from(stderr).toString("base64") };
}

function languageOf(name: string): Language {
  const language = Object.entries(CODE_LANGUAGES).find(([known]) => known === name)?.[1];
  if (language !== undefined) return language;
  const known = Object.keys(CODE_LANGUAGES).join(", ");
  throw new Refusal("invalid_request", `language ${JSON.stringify(name)} is not supported; use one of ${known}`);
}

const isMissing = ({ exitCode, stdout, stderr }: MachineExecResponse, program: string): boolean =>
  exitCode === EXIT_CODE_NOT_FOUND &&
  stdout === "" &&
  stderr === `executable file '${program}' not found in $PATH: No such file or directory\n`;
