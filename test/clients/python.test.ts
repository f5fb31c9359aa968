/**
 * The Python SDK: its wheel, built without a network, is installed into an empty folder, typed, and used
 * against a real server with machines of the fake driver.
 *
 * Always: Python, httpx, websockets, build and mypy are the distribution's packages, which set-up installs.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { makeDirectory, startUp } from "../../cli/test/run-up.ts";

const run = promisify(execFile);
const root = path.resolve(import.meta.dirname, "../..");
/** The distribution's, whose packages are used. */
const PYTHON = "/usr/bin/python3";
const TIMEOUT_MS = 180_000;

let folder: string;
let site: string;

/** Runs with the installed package, and nothing of the checkout. */
async function python(argv: readonly string[], environment: Readonly<Record<string, string>> = {}): Promise<string> {
  const env = {
    PATH: process.env["PATH"],
    HOME: folder,
    PYTHONPATH: site,
    PYTHONDONTWRITEBYTECODE: "1",
    ...environment,
  };
  const { stdout, stderr } = await run(PYTHON, argv, { cwd: folder, env, timeout: TIMEOUT_MS }).catch(
    (error: { stdout: string; stderr: string }) => assert.fail(error.stdout + error.stderr),
  );
  return stdout + stderr;
}

before(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "flotilla-python-"));
  site = path.join(folder, "site");
  const copy = path.join(folder, "sdk");
  cpSync(path.join(root, "sdk-python"), copy, { recursive: true });
  await python(["-m", "build", "--wheel", "--no-isolation", "--outdir", folder, copy]);
  const [wheel = ""] = readdirSync(folder).filter((name) => name.endsWith(".whl"));
  assert.match(wheel, /^flotilla-\d+\.\d+\.\d+-py3-none-any\.whl$/);
  await python(["-m", "zipfile", "-e", path.join(folder, wheel), site]);
  rmSync(copy, { recursive: true });
});
after(() => rmSync(folder, { recursive: true }));

test("the package says that it is typed, and strict types have nothing to say of it and its tests", async () => {
  assert.ok(readdirSync(path.join(site, "flotilla")).includes("py.typed"));
  const tests = path.join(root, "sdk-python/tests");
  for (const version of ["3.9", "3.11"]) {
    const said = await python([
      "-m",
      "mypy",
      "--strict",
      "--python-version",
      version,
      path.join(site, "flotilla"),
      tests,
    ]);
    assert.match(said, /^Success: no issues found in \d+ source files/, version);
  }
});

test("a program that uses it wrongly is refused by its types", async () => {
  const wrong = path.join(folder, "wrong.py");
  writeFileSync(
    wrong,
    `from flotilla import Flotilla
flotilla = Flotilla()
machine = flotilla.get_machine("m")
machine["nme"]
flotilla.create_machine({"name": "x"})
flotilla.stop_machine("m", keep_memory="yes")
`,
  );
  const env = { MYPYPATH: site, HOME: folder, PATH: process.env["PATH"] };
  const { stdout } = await run(PYTHON, ["-m", "mypy", "--strict", wrong], { cwd: folder, env }).catch(
    (error: { stdout: string }) => error,
  );
  assert.deepEqual(
    [...stdout.matchAll(/wrong\.py:(\d+): error/g)].map(([, line]) => line),
    ["4", "5", "6"],
    stdout,
  );
});

test("every file is read by Python 3.9", async () => {
  const files = globSync("flotilla/*.py", { cwd: site });
  assert.ok(files.length > 8);
  const parse = "import ast,sys\nfor name in sys.argv[1:]: ast.parse(open(name).read(), name, feature_version=(3, 9))";
  await python(["-c", parse, ...files.map((name) => path.join(site, name))]);
});

test("what it sends, retries and raises is as its tests say", async () => {
  const said = await python(["-m", "unittest", "discover", "-s", path.join(root, "sdk-python/tests")]);
  assert.match(said, /Ran \d{2} tests[^]*OK/);
});

test("against a real server", async (t) => {
  const up = await startUp(t, makeDirectory(t));

  await t.test("both clients do their story, and leave nothing", async () => {
    const said = await python([path.join(root, "sdk-python/tests/live.py")], up.environment);
    assert.match(said, /done\n$/);
    assert.equal(String((await up.cli("machine", "ls")).output), "");
  });

  await t.test("its program for agents runs as printed", async () => {
    const page = readFileSync(path.join(root, "docs/agents.md"), "utf8");
    const [, program = ""] = /```python\n([^]*?)```/.exec(page) ?? [];
    assert.equal(await python(["-c", program], up.environment), "hello\n\n");
  });

  await t.test("the quick start of its page runs as printed", async () => {
    const page = readFileSync(path.join(root, "sdk-python/README.md"), "utf8");
    const [, program = ""] = /```python\n([^]*?)```/.exec(page) ?? [];
    const said = await python(["-c", program], up.environment);
    assert.match(said, /b'kept'\nStdout\(data=b'one\\n'\)\nExit\(code=3\)\n$/);
    assert.equal(String((await up.cli("machine", "ls")).output), "");
  });
});
