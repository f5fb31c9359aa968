/**
 * The packages for ComputeSDK and the AI SDK, installed into an empty project beside the frameworks, and used
 * against a real server with machines of the fake driver. test/vm has their story in a real machine.
 *
 * Always: npm is used without a network; the frameworks are links to the checkout's.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { makeDirectory, type RunningUp, startUp } from "../../cli/test/run-up.ts";
import { pack } from "../../scripts/pack.ts";

const run = promisify(execFile);
const root = path.resolve(import.meta.dirname, "../..");
const tsc = path.join(root, "node_modules/typescript/bin/tsc");
const FRAMEWORKS = ["ai", "zod", "@computesdk/provider", "computesdk"];
const OPTIONS = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  verbatimModuleSyntax: true,
  skipLibCheck: true,
  target: "es2022",
  module: "nodenext",
  lib: ["es2024", "esnext.disposable"],
  types: ["node"],
  typeRoots: [path.join(root, "node_modules/@types")],
};

/** A model that runs one command and then says what it got. */
const MODEL = `
import { MockLanguageModelV4 } from "ai/test";
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const end = (unified) => ({ finishReason: { unified, raw: unified }, usage, warnings: [] });
export const model = new MockLanguageModelV4({
  doGenerate: async ({ prompt }) => {
    const last = prompt.at(-1);
    if (last.role !== "tool") {
      const call = { toolCallId: "1", toolName: "runCommand", input: JSON.stringify({ command: "echo hello" }) };
      return { ...end("tool-calls"), content: [{ type: "tool-call", ...call }] };
    }
    const { exitCode, stdout } = last.content[0].output.value;
    return { ...end("stop"), content: [{ type: "text", text: exitCode + " " + stdout.trim() }] };
  },
});
`;

let project: string;

before(async () => {
  project = await mkdtemp(path.join(tmpdir(), "flotilla-providers-"));
  await writeFile(path.join(project, "package.json"), '{ "private": true, "type": "module" }');
  const packages = (["sdk", "computesdk", "ai-sdk"] as const).map((name) => pack(name, project));
  const quiet = ["--offline", "--no-audit", "--no-fund", "--legacy-peer-deps"];
  await run("npm", ["install", ...quiet, ...packages], { cwd: project });
  for (const name of FRAMEWORKS) {
    const link = path.join(project, "node_modules", name);
    mkdirSync(path.dirname(link), { recursive: true });
    symlinkSync(path.join(root, "node_modules", name), link);
  }
  await writeFile(path.join(project, "model.js"), MODEL);
  await writeFile(
    path.join(project, "model.d.ts"),
    'import type { LanguageModel } from "ai";\nexport declare const model: LanguageModel;\n',
  );
});
after(() => rm(project, { recursive: true }));

/** What the section of the page prints for programs. */
async function programOf(section: string): Promise<string> {
  const page = await readFile(path.join(root, "docs/agents.md"), "utf8");
  const [, program] = new RegExp(`\n## ${section}\n[^]*?\`\`\`ts\n([^]*?)\`\`\``).exec(page) ?? [];
  assert.ok(program, section);
  return program;
}

async function playPrinted(section: string, up: RunningUp): Promise<string> {
  const name = section.toLowerCase().replaceAll(" ", "-");
  await writeFile(path.join(project, `${name}.ts`), await programOf(section));
  const config = path.join(project, `${name}.json`);
  await writeFile(config, JSON.stringify({ compilerOptions: OPTIONS, files: [`${name}.ts`] }));
  const compiled = await run(process.execPath, [tsc, "-p", config]).catch((error: { stdout: string }) => error);
  assert.equal(compiled.stdout, "");
  const env = { PATH: process.env["PATH"], ...up.environment };
  const { stdout } = await run(process.execPath, [path.join(project, `${name}.js`)], { env, cwd: project });
  assert.equal(String((await up.cli("machine", "ls")).output), "");
  return stdout;
}

test("the programs for agents compile in strict mode and run as printed", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  assert.equal(await playPrinted("ComputeSDK", up), "hello\n\n");
  assert.equal(await playPrinted("The AI SDK", up), "0 hello\n");
});

test("a provider's package has only peer dependencies", async () => {
  for (const [name, peers] of [
    ["computesdk", ["@computesdk/provider", "@flotilla/sdk"]],
    ["ai-sdk", ["@flotilla/sdk", "ai", "zod"]],
  ] as const) {
    const file = path.join(project, "node_modules/@flotilla", name, "package.json");
    const { dependencies, peerDependencies } = JSON.parse(await readFile(file, "utf8")) as Record<string, object>;
    assert.equal(dependencies, undefined);
    assert.deepEqual(Object.keys(peerDependencies ?? {}), peers);
  }
});
