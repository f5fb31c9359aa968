/**
 * An afternoon of a user who works in a machine, through the SDK and a browser, in order: their own image, a
 * project of 200 files, its tests with streamed output, a server in the background, an edit in a terminal, a
 * link for a colleague, a break with the machine stopped, and the bill.
 *
 * Other tests cover each part alone; this one covers all of it together, in a real Debian.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { Flotilla as Client } from "@flotilla/sdk";
import { WebSocket } from "ws";
import { Browser } from "../support/browser.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { debianArchive } from "../support/images.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const MODULES = 99;
const UPLOADS_AT_A_TIME = 8;
const PORT = 8000;
const PATIENT_MS = 60_000;

/** A page that a browser completes: its script fetches from the machine too. */
const page = (title: string): string =>
  [
    `<!doctype html><title>${title}</title><h1>${title}</h1><p id="fetched"></p>`,
    '<script type="module">',
    'const answer = await fetch("app/part_001.py");',
    'document.querySelector("#fetched").textContent = `${answer.status} ${await answer.text()}`;',
    "</script>",
    "",
  ].join("\n");

/** Two files for each module, a page and the program that runs the tests: 200 files. */
function project(): Map<string, string> {
  const files = new Map<string, string>();
  for (let number = 0; number < MODULES; number += 1) {
    const name = `part_${String(number).padStart(3, "0")}`;
    files.set(`app/${name}.py`, `def value():\n    return ${number}\n# ${"x".repeat(number * 10)}\n`);
    files.set(
      `tests/test_${name}.py`,
      `from app.${name} import value\n\ndef test():\n    assert value() == ${number}\n`,
    );
  }
  files.set("index.html", page("the afternoon"));
  files.set(
    "run_tests.py",
    [
      "import glob, importlib, os, sys",
      "sys.path.insert(0, os.getcwd())",
      "for path in sorted(glob.glob('tests/test_*.py')):",
      "    importlib.import_module(path[:-3].replace('/', '.')).test()",
      "    print('ok', path, flush=True)",
      "print('all passed')",
      "",
    ].join("\n"),
  );
  return files;
}

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

describe("an afternoon in a machine", { skip: skipReason }, () => {
  const files = project();
  let flotilla: Flotilla;
  let client: Client;
  let browser: Browser;
  let id = "";

  before(async () => {
    // Pages with scripts need their own origin; browsers resolve every name below localhost to this host.
    const serverEnvironment = (port: number) => ({ FLOTILLA_MACHINES_URL: `http://localhost:${port}` });
    flotilla = await startFlotilla({ driver: "qemu", serverEnvironment });
    browser = await Browser.start();
    const { url, key } = flotilla.client();
    client = new Client({ url, apiKey: key ?? "" });
  });
  after(async () => {
    await browser?.[Symbol.asyncDispose]();
    await flotilla?.[Symbol.asyncDispose]();
  });

  const run = async (command: string): Promise<string> => {
    const { stdout, stderr, exitCode } = await client.exec(id, { command, timeoutSeconds: 120 });
    assert.equal(exitCode, 0, stderr);
    return stdout;
  };

  /** The page as an outside client sees it; undefined while nothing serves it. */
  const served = async (): Promise<string | undefined> => {
    const { url, key } = flotilla.client();
    const headers = { authorization: `Bearer ${key}` };
    const answer = await fetch(`${url}/v1/machines/${id}/connect/${PORT}/index.html`, { headers });
    const text = await answer.text();
    return answer.status === 200 ? text : undefined;
  };

  test("a user's own Debian becomes an image and a machine", async () => {
    const archive = Readable.toWeb(createReadStream(await debianArchive())) as ReadableStream<Uint8Array>;
    const image = await client.importImage(archive, { query: { reference: "local/debian" } });
    assert.equal(image.reference, "local/debian:latest");
    const machine = await client.createMachine({
      name: "afternoon",
      source: { type: "image", reference: "local/debian" },
      resources: { cpus: 1, memoryMb: 512, diskGb: 4 },
      network: { mode: "blocked" },
      ports: [{ port: PORT }],
    });
    id = machine.id;
    assert.equal((await client.startMachine(id)).state, "started");
    assert.match(await run("cat /etc/os-release; python3 --version"), /ID=debian[\s\S]*Python 3/);
  });

  test("a project of 200 files arrives unchanged", async () => {
    assert.equal(files.size, 200);
    const waiting = [...files];
    const upload = async (): Promise<void> => {
      for (let next = waiting.pop(); next !== undefined; next = waiting.pop())
        await client.putFileAt(id, `workspace/project/${next[0]}`, next[1]);
    };
    await Promise.all(Array.from({ length: UPLOADS_AT_A_TIME }, upload));
    assert.equal(await treeInMachine(), treeOf(files));
  });

  test("its tests run, and their output arrives while they do", async () => {
    const command = "cd /workspace/project && python3 run_tests.py";
    let output = "";
    let pieces = 0;
    let exitCode: number | undefined;
    for await (const event of await client.streamExec(id, { command, timeoutSeconds: 120 })) {
      if (event.kind === "exit") exitCode = event.exitCode;
      else if (event.kind === "stdout") {
        output += Buffer.from(event.bytes).toString();
        pieces += 1;
      } else assert.fail(JSON.stringify(event));
    }
    assert.equal(exitCode, 0);
    assert.equal(output.split("\n").filter((line) => line.startsWith("ok ")).length, MODULES);
    assert.match(output, /all passed\n$/);
    assert.ok(pieces > 1, "it all came at once");
  });

  test("Python and JavaScript run unchanged, in the given directory and environment", async () => {
    const where = { cwd: "/workspace/project", env: { GREETING: `¡olé! 'quoted' "twice" $HOME` } };
    const odd = `""" ''' # $(reboot) \` \\ \t % \u2028 日本語 😀`;
    const python = [
      "import os, sys, app.part_007",
      `print(${JSON.stringify(odd)})`,
      "print(os.getcwd(), os.environ['GREETING'], app.part_007.value(), repr(sys.stdin.read()))",
      "print('''a",
      "b''', file=sys.stderr)",
      "sys.exit(3)",
    ].join("\r\n");
    const inPython = await client.runCode(id, { language: "python", code: python, ...where });
    const told = `${odd}\n/workspace/project ${where.env.GREETING}`;
    assert.deepEqual([inPython.stdout, inPython.stderr], [`${told} 7 ''\n`, "a\nb\n"]);
    assert.equal(inPython.exitCode, 3);
    const javascript = [
      `console.log(${JSON.stringify(odd)});`,
      "const input = require('node:fs').readFileSync(0, 'utf8');",
      "console.log(process.cwd(), process.env.GREETING, JSON.stringify(input));",
      `// ${"x".repeat(1024 * 1024)}`,
      "process.exitCode = 4;",
    ].join("\n");
    const inNode = await client.runCode(id, { language: "javascript", code: javascript, ...where });
    assert.deepEqual([inNode.stdout, inNode.stderr], [`${told} ""\n`, ""]);
    assert.equal(inNode.exitCode, 4);
    const endless = "import subprocess\nsubprocess.run(['sleep', '4321'])\n";
    const late = await client.runCode(id, { language: "python", code: endless, timeoutSeconds: 1 });
    assert.equal(late.exitCode, 124);
    assert.doesNotMatch(await run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), /sleep 4321 /);
  });

  test("a server in the background is reachable from outside, while the machine itself reaches nothing", async () => {
    const command = `cd /workspace/project && exec python3 -m http.server ${PORT}`;
    const { stdout, exitCode } = await client.exec(id, { command, background: true });
    assert.deepEqual([exitCode, /^pid=\d+$/.test(stdout.trim())], [0, true], stdout);
    const seen = await until(served, { what: "the page", deadlineMs: PATIENT_MS });
    assert.equal(seen, files.get("index.html"));
  });

  test("an edit in a terminal is what the server serves next", async () => {
    const { url, key } = flotilla.client();
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/machines/${id}/exec/interactive?cmd=/bin/bash`, {
      headers: { authorization: `Bearer ${key}` },
    });
    let shown = "";
    let exit = "";
    socket.on("message", (data: Buffer, isBinary: boolean) => {
      if (isBinary) shown += data.toString();
      else exit = data.toString();
    });
    const has = (text: string) =>
      until(() => shown.includes(text), { what: `${text} in the terminal`, deadlineMs: PATIENT_MS });
    await new Promise((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    socket.send(Buffer.from("cd /workspace/project; stty size; echo here-$((6 * 7))\n"));
    await has("here-42");
    socket.send(Buffer.from("sed -i 's/the afternoon/edited by hand/g' index.html\necho saved-$((6 * 7))\n"));
    await has("saved-42");
    socket.send(Buffer.from("exit 3\n"));
    await until(() => exit !== "", { what: "the terminal's end", deadlineMs: PATIENT_MS });
    assert.deepEqual(JSON.parse(exit), { type: "exit", code: 3 });
    files.set("index.html", page("edited by hand"));
    assert.equal(await served(), files.get("index.html"));
  });

  test("in a browser it is a page, over the bridge for its owner", async () => {
    const { url, key } = flotilla.client();
    await browser.open(`${url}/v1/machines/${id}/connect/${PORT}/`, { authorization: `Bearer ${key}` });
    assert.equal(await browser.evaluate("document.querySelector('h1').textContent"), "edited by hand");
    // Pages under the address of the API are sandboxed: their scripts have an opaque origin.
    assert.equal(await browser.evaluate("self.origin"), "null");
  });

  test("a colleague without a key sees it by a link, including scripts, until the link is ended", async () => {
    const { url } = await client.createShare(id);
    assert.ok(url);
    await browser.open(url);
    const shown = () => browser.evaluate("document.querySelector('#fetched')?.textContent || undefined");
    assert.match(
      String(await until(shown, { what: "what the page fetches", deadlineMs: PATIENT_MS })),
      /^200 def value/,
    );
    assert.equal(await browser.evaluate("document.title"), "edited by hand");
    // The token has become a cookie that no script sees.
    assert.equal(await browser.evaluate("location.search + document.cookie"), "");
    await browser.open(new URL("/tests/test_part_002.py", url).href);
    assert.match(String(await browser.evaluate("document.body.textContent")), /assert value\(\) == 2/);
    await client.removeShare(id);
    await browser.open(new URL("/", url).href);
    assert.equal(await browser.evaluate("document.querySelector('h1')"), null);
  });

  test("after a break with the machine stopped everything is there, and only what was started runs", async () => {
    await run("echo gone > /tmp/scratch");
    assert.equal((await client.stopMachine(id)).state, "stopped");
    assert.equal(await served(), undefined);
    assert.equal((await client.startMachine(id)).state, "started");
    assert.equal(await treeInMachine(), treeOf(files));
    assert.equal(await run("ls /tmp"), "");
    assert.equal(await served(), undefined);
  });

  test("the machine is deleted, and its usage is shown", async () => {
    const bill = await client.deleteMachine(id, { query: { includeUsage: true } });
    assert.equal(bill?.machineId, id);
    assert.ok((bill?.usage.totalUptimeSeconds ?? 0) > 0);
    assert.ok((bill?.usage.execCount ?? 0) >= 5);
    assert.deepEqual(await client.listMachines(), []);
    await assert.rejects(client.getMachine(id), /404|not found/);
  });

  /** Name and hash of each file, by name. */
  function treeOf(expected: ReadonlyMap<string, string>): string {
    const lines = [...expected].map(([path, content]) => `${sha256(content)}  ./${path}\n`);
    return lines.toSorted((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1)).join("");
  }

  async function treeInMachine(): Promise<string> {
    const find = "find . -type f ! -path '*__pycache__*' -print0";
    return await run(`cd /workspace/project && ${find} | LC_ALL=C sort -z | xargs -0 sha256sum`);
  }
});
