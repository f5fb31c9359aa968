/**
 * Clients generated from the API's OpenAPI document compile in strict mode, together with a program that a
 * user would write against each.
 *
 * Always: the programs have no casts, and mark lines that must not compile as expected errors, so types that
 * are too wide fail as well. The generated files are in a folder of this run, beside the packages they
 * import. A killed run leaves that folder behind; git ignores it.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { openApiDocument } from "@flotilla/contract/openapi";

interface Generator {
  readonly name: string;
  /** A program of node_modules/.bin and its arguments, run in a folder that has openapi.json. */
  readonly command: readonly [string, ...string[]];
}

const GENERATORS: readonly Generator[] = [
  { name: "openapi-fetch", command: ["openapi-typescript", "openapi.json", "-o", "schema.ts"] },
  { name: "hey-api", command: ["openapi-ts", "-i", "openapi.json", "-o", "client", "-c", "@hey-api/client-fetch"] },
  { name: "oazapfts", command: ["oazapfts", "openapi.json", "client.ts"] },
];

const COMPILER_OPTIONS = {
  strict: true,
  noUncheckedIndexedAccess: true,
  noImplicitReturns: true,
  target: "es2022",
  module: "esnext",
  moduleResolution: "bundler",
  lib: ["es2022", "dom", "dom.iterable"],
  types: [],
  skipLibCheck: true,
  noEmit: true,
};

/** A generator or a compiler that takes longer hangs. */
const PROGRAM_TIMEOUT_MS = 90_000;

const here = import.meta.dirname;
const root = path.resolve(here, "../..");
let folder: string;

before(async () => {
  folder = await mkdtemp(path.join(here, ".generated-"));
});
after(() => rm(folder, { recursive: true }));

/** Prefers the packages of this folder, whose TypeScript the generators can call. */
function programOf(name: string): string {
  const own = path.join(here, "node_modules/.bin", name);
  return existsSync(own) ? own : path.join(root, "node_modules/.bin", name);
}

async function run(program: string, args: readonly string[], cwd: string): Promise<void> {
  const child = spawn(process.execPath, [program, ...args], {
    cwd,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: PROGRAM_TIMEOUT_MS,
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  const [output, errors, status] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  assert.equal(status, 0, `${path.basename(program)} ${args.join(" ")}\n${output}${errors}`);
}

/** The repository's own compiler: the newest that users of the clients have. */
const compile = (cwd: string): Promise<void> => run(path.join(root, "node_modules/.bin/tsc"), ["-p", "."], cwd);

describe("a client generated from the description compiles in strict mode, with a program that uses it", {
  concurrency: GENERATORS.length,
}, () => {
  for (const { name, command } of GENERATORS) {
    it(`by ${name}`, async () => {
      const own = path.join(folder, name);
      await mkdir(own);
      await writeFile(path.join(own, "openapi.json"), JSON.stringify(openApiDocument()));
      await writeFile(path.join(own, "program.ts"), await readFile(path.join(here, "programs", `${name}.ts.txt`)));
      await writeFile(path.join(own, "tsconfig.json"), JSON.stringify({ compilerOptions: COMPILER_OPTIONS }));
      const [program, ...args] = command;
      await run(programOf(program), args, own);
      await compile(own);
    });
  }
});
