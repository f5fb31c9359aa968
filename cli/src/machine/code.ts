/**
 * `flotilla machine code NAME FILE`: runs a local Python or JavaScript file in a machine, with the
 * interpreter of its image, and ends with the program's exit code. The file is not copied: it is the
 * interpreter's input.
 *
 * The file's name gives the language, or --language does, which a program on standard input (`-`) needs.
 */
import { readFile } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { buffer } from "node:stream/consumers";
import type { MachineCodeRequest } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure, localFailure, usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import { showAnswer } from "./exec.ts";
import { findMachineId } from "./find.ts";

export interface CodeOptions {
  readonly language?: string;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeout?: number;
}

const LANGUAGES: Readonly<Record<string, string>> = {
  ".py": "python",
  ".js": "javascript",
  ".cjs": "javascript",
  ".mjs": "javascript",
};

export async function run(call: Call, [reference = "", file = ""]: readonly string[], options: CodeOptions) {
  const language = options.language ?? LANGUAGES[extname(file).toLowerCase()];
  if (language === undefined)
    throw usage(`the language of ${file} is not known by its name`, "say --language python or --language javascript");
  const code = textOf(file, await contentOf(call, file));
  const flotilla = call.flotilla(nodeFetch);
  const request: MachineCodeRequest = {
    language,
    code,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env }),
    ...(options.timeout === undefined ? {} : { timeoutSeconds: options.timeout }),
  };
  return showAnswer(call, await flotilla.runCode(await findMachineId(flotilla, reference), request)) & 0xff;
}

async function contentOf({ world }: Call, file: string): Promise<Buffer> {
  if (file === "-") return await buffer(world.streams.input);
  try {
    return await readFile(resolve(world.directory, file));
  } catch (error) {
    throw localFailure(error, file);
  }
}

function textOf(file: string, content: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    throw new Failure(`${file} is not UTF-8 text`);
  }
}
