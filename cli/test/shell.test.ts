/**
 * `flotilla machine shell` against a real server and a scripted guest: through a pipe, and on a terminal.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { type TestContext, test } from "node:test";
import { type WebSocket, WebSocketServer } from "ws";
import { startTestNode, TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { until } from "../../test/support/until.ts";
import { runCli, startCli } from "./run-cli.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const source = { type: "image", reference: "local/busybox" };
await server.client.post("/v1/machines", { source, name: "hello" });

const shell = (t: TestContext, input: string, ...more: readonly string[]) =>
  runCli(t, ["machine", "shell", "hello", ...more], { environment, input });

test("piped input is sent as if typed, and the program's exit code is this program's", async (t) => {
  const { code, output, errors } = await shell(t, "echo from the pipe\nstty size\nexit 5\n");
  assert.deepEqual([code, output.toString(), errors], [5, "from the pipe\n24 80\n", ""]);
  const unended = await shell(t, "exit 4");
  assert.deepEqual([unended.code, unended.errors], [4, ""], "the last line has no line break");
});

test("the end of piped input is repeated, so that a program and the shell that started it both end", async (t) => {
  const { child } = startCli(t, ["machine", "shell", "hello"], { environment, input: "cat\n" });
  let seen = "";
  child.stdout?.on("data", (chunk: Buffer) => (seen += chunk.toString()));
  await until(() => seen.split("\u0004").length > 2, { what: "a second end of input", deadlineMs: 5_000 });
});

test("another program can be requested", async (t) => {
  const { code, output } = await shell(t, "", "--program", "/bin/none");
  assert.equal(code, 255);
  assert.match(output.toString(), /'\/bin\/none' not found/);
});

test("exec -it runs a command with arguments, directory and variables in a terminal", async (t) => {
  const exec = (...more: readonly string[]) => runCli(t, ["machine", "exec", ...more], { environment, input: "" });
  const { code, output, errors } = await exec(
    "-it",
    "-e",
    "WHO=a=b",
    "-w",
    "/tmp",
    "hello",
    "--",
    "sh",
    "-c",
    "stty size; pwd; echo $WHO; exit 6",
  );
  assert.deepEqual([code, output.toString(), errors], [6, "24 80\n/tmp\na=b\n", ""]);
  const line = await exec("-t", "hello", "stty size; exit 7");
  assert.deepEqual([line.code, line.output.toString()], [7, "24 80\n"]);
  const both = await exec("-t", "--background", "hello", "true");
  assert.equal(both.code, 2);
  assert.match(both.errors, /--tty excludes --background/);
});

test("a command that is ended at its time limit says so, and one that ends with the same exit code does not", async (t) => {
  const exec = (...command: readonly string[]) => runCli(t, ["machine", "exec", ...command], { environment });
  const limited = await exec("--timeout", "1s", "hello", "sleep 600");
  assert.deepEqual([limited.code, limited.output.toString()], [124, ""]);
  assert.match(
    limited.errors,
    /^command timed out\nflotilla: the command was ended after 1 s; --timeout allows another time\n$/,
  );
  const own = await exec("hello", "exit 124");
  assert.deepEqual([own.code, own.errors], [124, ""]);
});

test("a terminal that is refused says why", async (t) => {
  const made = await server.client.post("/v1/apikeys", { scopes: ["machine:read"] });
  const reader = { ...environment, FLOTILLA_API_KEY: made.json.key };
  const { code, errors } = await runCli(t, ["machine", "shell", "hello"], { environment: reader, input: "" });
  assert.equal(code, 1);
  assert.match(errors, /missing scope: machine:exec/);
});

/** A server with one machine, whose terminal is opened by `open`. Returns its address. */
async function startTerminals(t: TestContext, open: (accept: () => Promise<WebSocket>) => void): Promise<string> {
  const sockets = new WebSocketServer({ noServer: true });
  const server = createServer((_request, answer) => answer.end(JSON.stringify([{ id: "mach-1", name: "hello" }])));
  server.on("upgrade", (request, socket, head) =>
    open(() => new Promise((resolve) => sockets.handleUpgrade(request, socket, head, resolve))),
  );
  t.after(() => server.close());
  t.after(() => sockets.clients.forEach((client) => client.terminate()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("a stop request ends a terminal whose server does not answer", async (t) => {
  let silent: WebSocket | undefined;
  const url = await startTerminals(t, async (accept) => {
    silent = await accept();
    silent.send(Buffer.from("opened\n"));
    silent.pause();
  });
  const { child, ran } = startCli(t, ["machine", "shell", "hello"], { environment: { FLOTILLA_URL: url }, input: "x" });
  let seen = "";
  child.stdout?.on("data", (chunk: Buffer) => (seen += chunk.toString()));
  await until(() => seen.includes("opened"), { what: "the terminal", deadlineMs: 15_000 });
  child.kill("SIGTERM");
  await until(() => child.exitCode !== null, { what: "the end of the command", deadlineMs: 15_000 });
  assert.deepEqual([(await ran).code, (await ran).errors], [130, ""]);
});

test("what a slow reader of a terminal has not read waits in the machine, and nothing is lost", async (t) => {
  const pieces = 128;
  const piece = Buffer.alloc(512 * 1024, "x");
  let socket: WebSocket | undefined;
  const url = await startTerminals(t, (accept) => {
    void accept().then((opened) => {
      for (let sent = 0; sent < pieces; sent += 1) opened.send(piece);
      opened.send(JSON.stringify({ type: "exit", code: 6 }), { binary: false });
      opened.close();
      socket = opened;
    });
  });
  const child = spawn(process.execPath, [MAIN, "machine", "exec", "-t", "hello", "--", "yes"], {
    env: { PATH: process.env["PATH"], HOME: "/nonexistent", FLOTILLA_URL: url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  // Unchanged in so many polls: nothing more is read.
  let [waiting, polls] = [-1, 0];
  const isStill = (): boolean => {
    const now = socket?.bufferedAmount ?? -1;
    polls = now === waiting && now >= 0 ? polls + 1 : 0;
    waiting = now;
    return polls > 25;
  };
  await until(isStill, { what: "a reader that reads no more", deadlineMs: 20_000, everyMs: 20 });
  assert.ok(waiting > 0.75 * pieces * piece.length, `${waiting} bytes wait`);
  let read = 0;
  child.stdout.on("data", (bytes: Buffer) => (read += bytes.length));
  const [code] = (await once(child, "close")) as [number];
  assert.deepEqual([code, read], [6, pieces * piece.length]);
});

const skip = spawnSync("script", ["--version"]).status !== 0 && "no script";

/** A shell in the machine on a terminal of this size, which `stty size` shows there as `seenSize`. */
async function shellOnTerminal(
  t: TestContext,
  { columns, rows, seenSize }: { columns: number; rows: number; seenSize: string },
) {
  const line = `stty cols ${columns} rows ${rows}; ${process.execPath} ${MAIN} machine shell hello; echo "ended with $?"; stty -a`;
  const child = spawn("script", ["-qec", line, "/dev/null"], {
    env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", SHELL: "/bin/sh", TERM: "xterm", ...environment },
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  let seen = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    seen += text;
  });
  const shows = (text: string) =>
    until(() => seen.includes(text), { what: `${text} in ${JSON.stringify(seen)}`, deadlineMs: 15_000 });
  const isRaw = (): boolean => {
    child.stdin.write("stty size\n");
    return seen.includes(seenSize);
  };
  await until(isRaw, { what: `the size of the terminal in ${JSON.stringify(seen)}`, deadlineMs: 15_000 });
  return { type: (text: string) => child.stdin.write(text), shows };
}

test("on a terminal, its size and its keys are passed to the machine", { skip }, async (t) => {
  const { type, shows } = await shellOnTerminal(t, { columns: 132, rows: 43, seenSize: "43 132" });
  type("echo \u0003 | got through\nexit 9\n");
  await shows("\u0003 | got through");
  await shows("ended with 9");
  await shows(" icanon ");
});

test("on a terminal whose size is not set, the machine's default is used", { skip }, async (t) => {
  const { type, shows } = await shellOnTerminal(t, { columns: 0, rows: 0, seenSize: "24 80" });
  type("exit 3\n");
  await shows("ended with 3");
});

test("a terminal that is resized while it is opened has its new size in the machine", { skip }, async (t) => {
  const messages: string[] = [];
  let accept: (() => Promise<WebSocket>) | undefined;
  const url = await startTerminals(t, (given) => (accept = given));
  const line = `stty cols 100 rows 30; tty; exec ${process.execPath} ${MAIN} machine shell hello`;
  const child = spawn("script", ["-qec", line, "/dev/null"], {
    env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", SHELL: "/bin/sh", FLOTILLA_URL: url },
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  let seen = "";
  child.stdout.on("data", (chunk: Buffer) => (seen += chunk.toString()));
  await until(() => accept !== undefined, { what: "the request of a terminal", deadlineMs: 15_000 });
  const { status } = spawnSync("stty", ["-F", seen.trim().split(/\s/)[0] ?? "", "cols", "77", "rows", "33"]);
  assert.equal(status, 0, seen);
  const socket = await accept?.();
  socket?.on("message", (data: Buffer) => messages.push(data.toString()));
  // stty sets the columns and then the rows, so a message with the old rows may come first.
  const expected = JSON.stringify({ type: "resize", cols: 77, rows: 33 });
  await until(() => messages.at(-1) === expected, { what: `${expected} last of ${messages}`, deadlineMs: 15_000 });
});
