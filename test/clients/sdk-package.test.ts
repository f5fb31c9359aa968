/**
 * The package of the TypeScript SDK, installed into an empty project: it compiles there in strict mode, is
 * imported and required, and runs; in a browser's project it needs no type of Node.
 *
 * Always: npm is used without a network, so the package needs nothing else.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { makeDirectory, startUp } from "../../cli/test/run-up.ts";
import { pack } from "../../scripts/pack.ts";
import { replyJson, startPeer } from "../../sdk/test/peer.ts";

const run = promisify(execFile);
const root = path.resolve(import.meta.dirname, "../..");
/** The compiler of most projects today. */
const ownTsc = path.join(import.meta.dirname, "node_modules/typescript/bin/tsc");
const tsc = existsSync(ownTsc) ? ownTsc : path.join(root, "node_modules/typescript/bin/tsc");

/** Without a cast, and with an expected error, so that types that are too wide fail as well. */
const STORY = `
async function story(url: string): Promise<string> {
  const flotilla = new Flotilla({ url, apiKey: "smk_x" });
  // @ts-expect-error -- a source is required
  const wrong = (): Promise<unknown> => flotilla.createMachine({});
  void wrong;
  await using machine = await ownedMachine(flotilla, { source: { type: "image", reference: "alpine" } });
  const names: (string | null)[] = [];
  for await (const each of items((page) => flotilla.listMachines(page))) names.push(each.name);
  try {
    await flotilla.getMachine("missing", { signal: new AbortController().signal });
  } catch (error) {
    if (!(error instanceof FlotillaError)) throw error;
    const code: FailureCode = error.code;
    if (error.code === "not_found") return [machine.id, names.length, code, error.advice !== null].join(" ");
  }
  return "no refusal";
}
`;
const NAMES = "type FailureCode, Flotilla, FlotillaError, items, ownedMachine";
const RUN = `void story(process.argv[2] ?? "").then((said) => console.log(said));\n`;
const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  verbatimModuleSyntax: true,
  skipLibCheck: false,
  target: "es2022",
};

let project: string;
const folder = (): string => path.join(project, "node_modules/@flotilla/sdk");

before(async () => {
  project = await mkdtemp(path.join(tmpdir(), "flotilla-sdk-user-"));
  const packed = pack("sdk", project);
  await writeFile(path.join(project, "package.json"), '{ "private": true }');
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", packed], { cwd: project });
});
after(() => rm(project, { recursive: true }));

async function compile(name: string, source: string, compilerOptions: object): Promise<void> {
  const files = [name];
  await writeFile(path.join(project, name), source);
  const config = path.join(project, `${name}.json`);
  await writeFile(config, JSON.stringify({ compilerOptions: { ...STRICT, ...compilerOptions }, files }));
  const { stdout } = await run(process.execPath, [tsc, "-p", config]).catch((error: { stdout: string }) => error);
  assert.equal(stdout, "");
}

const NODE = {
  module: "nodenext",
  lib: ["es2023", "esnext.disposable"],
  types: ["node"],
  typeRoots: [path.join(root, "node_modules/@types")],
};

for (const [name, source] of [
  ["story.mts", `import { ${NAMES} } from "@flotilla/sdk";${STORY}${RUN}`],
  [
    "story.cts",
    `import sdk = require("@flotilla/sdk");
const { Flotilla, FlotillaError, items, ownedMachine } = sdk;
type FailureCode = sdk.FailureCode;${STORY}${RUN}`,
  ],
] as const) {
  test(`${name} compiles in strict mode and runs with what the package gives it`, async (t) => {
    await compile(name, source, NODE);
    const peer = await startPeer(t, replyJson({ id: "mach-1" }, 201), replyJson([{ name: "a" }]), (_call, answer) => {
      answer.writeHead(404, { "x-error-code": "not_found" }).end();
    });
    const program = path.join(project, name.replace("ts", "js"));
    const { stdout } = await run(process.execPath, [program, peer.url]);
    assert.equal(stdout, "mach-1 1 not_found true\n");
    assert.equal(peer.arrived.at(-1)?.method, "DELETE");
  });
}

test("a project of a browser compiles without a type of Node", async () => {
  const lib = ["es2023", "esnext.disposable", "dom", "dom.iterable"];
  const source = `import { ${NAMES} } from "@flotilla/sdk";${STORY}void story(location.href);\n`;
  await compile("browser.mts", source, { lib, types: [], module: "esnext", moduleResolution: "bundler" });
});

test("the program for agents compiles and runs as printed, against a real server", async (t) => {
  const page = await readFile(path.join(root, "docs/agents.md"), "utf8");
  const [, program = ""] = /```ts\n([^]*?)```/.exec(page) ?? [];
  const up = await startUp(t, makeDirectory(t));
  await compile("agents.mts", program, NODE);
  const env = { PATH: process.env["PATH"], ...up.environment };
  const { stdout } = await run(process.execPath, [path.join(project, "agents.mjs")], { env });
  assert.equal(stdout, "hello\n\n");
  assert.equal(String((await up.cli("machine", "ls")).output), "");
});

test("a part of the package is imported alone, and marked as free of side effects for bundlers", async () => {
  const manifest = JSON.parse(await readFile(path.join(folder(), "package.json"), "utf8")) as Record<string, unknown>;
  assert.equal(manifest["sideEffects"], false);
  assert.equal(manifest["dependencies"], undefined);
  await writeFile(
    path.join(project, "part.mjs"),
    `import * as part from "@flotilla/sdk/pages";
console.log(Object.keys(part).join());\n`,
  );
  const { stdout } = await run(process.execPath, [path.join(project, "part.mjs")]);
  assert.equal(stdout, "items\n");
});

/** The bundle of a program for browsers, minified. What the bundler does not find is an error. */
async function bundled(name: string, source: string): Promise<string> {
  await writeFile(path.join(project, `${name}.mjs`), source);
  const rolldown = path.join(root, "node_modules/.bin/rolldown");
  const out = path.join(project, `${name}.bundle`);
  const options = ["--format", "esm", "--platform", "browser", "--minify", "--dir", out];
  const { stdout, stderr } = await run(process.execPath, [rolldown, `${name}.mjs`, ...options], { cwd: project });
  assert.doesNotMatch(stdout + stderr, /warn|unresolved|external/i);
  return readFile(path.join(out, `${name}.js`), "utf8");
}

test("a bundler leaves out what a program does not use, and finds nothing of Node", async () => {
  const all = await bundled("all", `import * as sdk from "@flotilla/sdk"; console.log(sdk);\n`);
  const one = await bundled("one", `import { items } from "@flotilla/sdk"; console.log(items);\n`);
  const error = await bundled("error", `import { FlotillaError } from "@flotilla/sdk"; console.log(FlotillaError);\n`);
  const part = await bundled("part", `import { items } from "@flotilla/sdk/pages"; console.log(items);\n`);
  assert.match(all, /\/v1\/machines/);
  for (const bundle of [one, part, error]) assert.doesNotMatch(bundle, /\/v1\/|WebSocket/);
  assert.ok(one.length < 2_000 && part.length < 2_000, `${one.length} and ${part.length} of ${all.length} bytes`);
  for (const bundle of [all, one, part, error]) assert.doesNotMatch(bundle, /node:|\brequire\(|\bprocess\.|\bBuffer\b/);
});

test("no file of the package imports anything but its neighbours", async () => {
  for (const name of await readdir(folder(), { recursive: true })) {
    if (!/\.(js|d\.ts)$/.test(name)) continue;
    const text = await readFile(path.join(folder(), name), "utf8");
    for (const [, from = ""] of text.matchAll(/(?:\bfrom |\brequire\(|\bimport\()"([^"]+)"/g))
      assert.match(from, /^\.\/[a-z-]+\.(js|ts)$/, `${name} imports ${from}`);
  }
});
