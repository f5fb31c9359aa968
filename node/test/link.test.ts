/**
 * The link's socket: routes, refusals of invalid requests, and execs with frames in both directions.
 */
import assert from "node:assert/strict";
import { stat } from "node:fs/promises";
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import type { ExecExit, LinkError, ExecStart } from "@flotilla/contract/link/link";
import { encodeLinkFrame, LinkDecoder, type LinkFrame } from "@flotilla/contract/link/frames";
import { until } from "../../test/support/until.ts";
import { linkSocketPath } from "../src/link/socket-path.ts";
import { machineIdOf, specOf } from "./support/in-process.ts";
import { startTestLink, type TestLink } from "./support/link.ts";
import { scriptedExec } from "./support/scripted-exec.ts";

const A = machineIdOf("a");

const answerOf = ({ socketPath }: TestLink, method: string, path: string, body?: unknown) =>
  call(socketPath, method, path, body);

function call(socketPath: string, method: string, path: string, body?: unknown) {
  return new Promise<{ status: number; body: unknown }>((resolve, reject) => {
    const request = httpRequest({ socketPath, method, path }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: parseBody(text) }));
    });
    request.on("error", reject);
    request.end(body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body));
  });
}

function parseBody(text: string): unknown {
  const lines = text.split("\n").filter((line) => line !== "");
  const values = lines.map((line) => JSON.parse(line) as unknown);
  return values.length <= 1 ? values[0] : values;
}

/** An exec on the link, with the frames received so far. */
class Exec {
  readonly request: ClientRequest;
  response: IncomingMessage | null = null;
  readonly frames: LinkFrame[] = [];
  readonly #ended = Promise.withResolvers<void>();

  constructor(socketPath: string, start: Partial<ExecStart> & Pick<ExecStart, "argv">) {
    this.request = httpRequest({ socketPath, method: "POST", path: `/v1/machines/${A}/exec` });
    const decoder = new LinkDecoder();
    this.request.on("response", (response) => {
      this.response = response;
      response.on("data", (chunk: Buffer) => this.frames.push(...decoder.push(chunk)));
      response.on("end", () => this.#ended.resolve());
      response.on("error", () => this.#ended.resolve());
    });
    this.request.on("error", () => this.#ended.resolve());
    const whole: ExecStart = {
      cwd: null,
      env: {},
      user: null,
      timeoutMs: null,
      isBackground: false,
      hasStdin: false,
      terminal: null,
      ...start,
    };
    this.request.write(encodeLinkFrame("start", JSON.stringify(whole)));
  }

  text(type: "stdout" | "stderr"): string {
    const parts = this.frames.filter((frame) => frame.type === type).map((frame) => frame.payload);
    return Buffer.concat(parts).toString("utf8");
  }

  async end(): Promise<ExecExit | LinkError> {
    await this.#ended.promise;
    const last = this.frames.at(-1);
    assert.ok(last?.type === "exit" || last?.type === "failure", `last frame ${last?.type}`);
    return JSON.parse(Buffer.from(last.payload).toString("utf8")) as ExecExit | LinkError;
  }
}

async function runs(served: TestLink, env: Record<string, string> = {}): Promise<void> {
  const answer = await answerOf(served, "PUT", `/v1/machines/${A}?waitMs=60000`, {
    generation: 1,
    state: "running",
    spec: specOf(A, { env }),
  });
  assert.deepEqual([answer.status, (answer.body as { state: string }).state], [200, "running"]);
}

const exec = (served: TestLink, argv: readonly string[], more: Partial<ExecStart> = {}): Exec => {
  const made = new Exec(served.socketPath, { argv, ...more });
  if (more.hasStdin !== true) made.request.end();
  return made;
};

test("only the node agent's user may open the socket", async () => {
  await using served = await startTestLink();
  assert.equal((await stat(served.socketPath)).mode & 0o777, 0o600);
  assert.ok(linkSocketPath(`/${"long/".repeat(30)}`).length < 60);
  assert.equal(linkSocketPath("/data/node"), join("/data/node", "link.sock"));
});

test("an older generation is answered 409 with the observed machine", async () => {
  await using served = await startTestLink();
  await runs(served);
  const newer = await answerOf(served, "PUT", `/v1/machines/${A}?waitMs=60000`, {
    generation: 3,
    state: "absent",
    spec: null,
  });
  assert.equal((newer.body as { state: string }).state, "absent");
  const older = await answerOf(served, "PUT", `/v1/machines/${A}`, {
    generation: 2,
    state: "running",
    spec: specOf(A),
  });
  assert.equal(older.status, 409);
  assert.equal((older.body as { state: string }).state, "absent");
});

test("a put without a wait answers at once with the current state", async () => {
  await using served = await startTestLink();
  const answer = await answerOf(served, "PUT", `/v1/machines/${A}`, {
    generation: 1,
    state: "running",
    spec: specOf(A, { env: { FAKE_BOOT_MS: "500" } }),
  });
  assert.ok(["preparing", "booting"].includes((answer.body as { state: string }).state));
});

test("a request that violates the contract is refused with 400 and changes nothing", async () => {
  await using served = await startTestLink();
  const desired = { generation: 1, state: "running", spec: specOf(A) };
  const bad: unknown[] = [
    "{",
    [],
    { ...desired, generation: 0 },
    { ...desired, generation: 1.5 },
    { ...desired, state: "paused" },
    { ...desired, spec: null },
    { ...desired, spec: { ...desired.spec, machineId: machineIdOf("b") } },
    { ...desired, spec: { ...desired.spec, cpus: 0 } },
    { ...desired, spec: { ...desired.spec, memoryMb: 1e9 } },
    { ...desired, spec: { ...desired.spec, hostname: "a/b" } },
    { ...desired, spec: { ...desired.spec, workdir: "relative" } },
    { ...desired, spec: { ...desired.spec, image: { reference: "--help", arch: null } } },
    { ...desired, spec: { ...desired.spec, env: { "A=B": "c" } } },
    { ...desired, spec: { ...desired.spec, env: { A: "nul\0" } } },
    { ...desired, spec: { ...desired.spec, env: { A: "x".repeat(600_000) } } },
    { ...desired, spec: { ...desired.spec, ports: [{ port: 70_000 }] } },
  ];
  for (const body of bad) {
    const answer = await answerOf(served, "PUT", `/v1/machines/${A}`, body);
    assert.equal(answer.status, 400, JSON.stringify(body).slice(0, 200));
  }
  assert.equal((await answerOf(served, "PUT", "/v1/machines/mach-..%2f", desired)).status, 400);
  assert.equal((await answerOf(served, "PUT", "/v1/machines/../../etc", desired)).status, 404);
  assert.equal(served.node.fleet.size, 0);
});

test("a command's output, error output and exit code are returned", async () => {
  await using served = await startTestLink();
  await runs(served, { GREETING: "hello" });
  const run = exec(served, ["sh", "-lc", "echo $GREETING; echo oops >&2; exit 3"]);
  const exit = (await run.end()) as ExecExit;
  assert.deepEqual([run.text("stdout"), run.text("stderr")], ["hello\n", "oops\n"]);
  assert.deepEqual([exit.exitCode, exit.hasTimedOut, exit.pid], [3, false, null]);
  assert.ok(exit.durationMs >= 0);
});

test("a program that does not exist exits with 255", async () => {
  await using served = await startTestLink();
  await runs(served);
  const run = exec(served, ["nope"]);
  assert.equal(((await run.end()) as ExecExit).exitCode, 255);
  assert.match(run.text("stderr"), /'nope' not found/);
});

test("input is accepted while output is sent", async () => {
  await using served = await startTestLink();
  await runs(served);
  const run = exec(served, ["cat"], { hasStdin: true });
  for (const word of ["one ", "two "]) {
    run.request.write(encodeLinkFrame("stdin", word));
    await until(() => run.text("stdout").endsWith(word), { what: `echo of ${word}` });
  }
  run.request.end(encodeLinkFrame("stdinEnd"));
  assert.equal(((await run.end()) as ExecExit).exitCode, 0);
  assert.equal(run.text("stdout"), "one two ");
});

test("the answer to a silent command starts before it ends", async () => {
  await using served = await startTestLink();
  await runs(served);
  const run = exec(served, ["sleep", "60"]);
  await until(() => run.response !== null, { what: "the head of the answer", deadlineMs: 2_000 });
  run.request.destroy();
});

test("a command over its time limit is killed with 124", async () => {
  await using served = await startTestLink();
  await runs(served);
  const run = exec(served, ["sleep", "60"], { timeoutMs: 50 });
  const exit = (await run.end()) as ExecExit;
  assert.deepEqual([exit.exitCode, exit.hasTimedOut], [124, true]);
  assert.ok(exit.durationMs >= 45 && exit.durationMs < 5_000);
});

test("many megabytes arrive completely at a slow reader, and the exit comes last", async () => {
  await using served = await startTestLink();
  await runs(served);
  const bytes = 24 * 1024 * 1024;
  const run = exec(served, ["head", "-c", String(bytes), "/dev/zero"]);
  await until(() => run.response !== null, { what: "an answer" });
  for (let count = 0; count < 5; count += 1) {
    run.response?.pause();
    await until(() => run.response?.isPaused(), { what: "a pause" });
    run.response?.resume();
  }
  const exit = (await run.end()) as ExecExit;
  assert.equal(exit.exitCode, 0);
  const got = run.frames.reduce((sum, { type, payload }) => sum + (type === "stdout" ? payload.byteLength : 0), 0);
  assert.equal(got, bytes);
});

test("a command ends when its caller disconnects, unless it runs in the background", async () => {
  await using served = await startTestLink();
  await runs(served);
  const guest = served.node.fleet.find(A)?.access.guest;
  assert.ok(guest);
  const killed: boolean[] = [];
  const original = guest.exec.bind(guest);
  guest.exec = (request) => {
    const made = original(request);
    const kill = made.kill.bind(made);
    made.kill = () => {
      killed.push(request.isBackground);
      kill();
    };
    return made;
  };
  const run = exec(served, ["sleep", "60"]);
  await until(() => run.response !== null, { what: "an answer" });
  run.request.destroy();
  await until(() => killed.length === 1, { what: "the kill" });
  const background = exec(served, ["sleep", "1"], { isBackground: true });
  const exit = (await background.end()) as ExecExit;
  assert.equal(exit.exitCode, 0);
  assert.ok((exit.pid ?? 0) > 0);
  assert.deepEqual(killed, [false]);
});

test("a disconnect is noticed even while the command does not read", async () => {
  await using served = await startTestLink();
  await runs(served, { FAKE_EXECS_MAX: "1" });
  const run = exec(served, ["sleep", "60"], { hasStdin: true });
  for (let count = 0; count < 64; count += 1) run.request.write(encodeLinkFrame("stdin", Buffer.alloc(60 * 1024)));
  await until(() => run.response !== null, { what: "an answer" });
  run.request.destroy();
  const hasRoom = async (): Promise<boolean> => "exitCode" in (await exec(served, ["true"]).end());
  await until(hasRoom, { what: "the command to be ended", deadlineMs: 20_000 });
});

test("a caller that leaves before a file is read causes no error of the node", async (t) => {
  await using served = await startTestLink();
  await runs(served);
  const guest = served.node.fleet.find(A)?.access.guest;
  assert(guest);
  const [asked, killed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  t.mock.method(guest, "file", () => {
    asked.resolve();
    return scriptedExec(killed.resolve).exec;
  });
  const request = httpRequest({
    socketPath: served.socketPath,
    method: "POST",
    path: `/v1/machines/${A}/files/read`,
  }).on("error", () => undefined);
  request.end(JSON.stringify({ path: "/workspace/file", offset: 0 }));
  await asked.promise;
  request.destroy();
  await killed.promise;
  assert.equal((await answerOf(served, "GET", "/v1/images")).status, 200);
  assert.deepEqual(served.errors, []);
});

test("invalid frames end the exec with a failure", async () => {
  await using served = await startTestLink();
  await runs(served);
  const empty = new Exec(served.socketPath, { argv: [] });
  assert.equal(((await empty.end()) as LinkError).code, "invalid");
  const twice = exec(served, ["cat"], { hasStdin: true });
  twice.request.write(encodeLinkFrame("start", "{}"));
  assert.match(((await twice.end()) as LinkError).message, /second start/);
  const wrong = exec(served, ["cat"], { hasStdin: true });
  wrong.request.write(encodeLinkFrame("exit", "{}"));
  assert.equal(((await wrong.end()) as LinkError).code, "invalid");
  const unknown = exec(served, ["cat"], { hasStdin: true });
  unknown.request.write(Buffer.from([99, 0, 0, 0, 0]));
  assert.equal(((await unknown.end()) as LinkError).code, "invalid");
});

test("an exec is refused when the machine does not exist or does not run", async () => {
  await using served = await startTestLink();
  assert.equal((await answerOf(served, "POST", `/v1/machines/${A}/exec`)).status, 404);
  await runs(served);
  await answerOf(served, "PUT", `/v1/machines/${A}?waitMs=60000`, { generation: 2, state: "stopped", spec: specOf(A) });
  assert.equal((await answerOf(served, "POST", `/v1/machines/${A}/exec`)).status, 409);
});

test("when a VM ends, its execs end with guest_unreachable", async () => {
  await using served = await startTestLink();
  await runs(served);
  const run = exec(served, ["sleep", "60"]);
  await until(() => run.response !== null, { what: "an answer" });
  exec(served, ["crash"]);
  assert.equal(((await run.end()) as LinkError).code, "guest_unreachable");
});

test("a command over the limit is refused as busy, and accepted when another has ended", async () => {
  await using served = await startTestLink();
  await runs(served, { FAKE_EXECS_MAX: "1" });
  const first = exec(served, ["cat"], { hasStdin: true });
  await until(() => first.response !== null, { what: "an answer" });
  const second = exec(served, ["echo", "hi"]);
  assert.equal(((await second.end()) as LinkError).code, "busy");
  first.request.end();
  await first.end();
  const third = exec(served, ["echo", "hi"]);
  assert.equal(((await third.end()) as ExecExit).exitCode, 0);
});

test("images are pulled with progress, listed and imported", async () => {
  await using served = await startTestLink();
  const pulled = (await answerOf(served, "PUT", "/v1/images", { reference: "app:slow-20", arch: null })).body as {
    kind: string;
  }[];
  assert.deepEqual([pulled.at(0)?.kind, pulled.at(-1)?.kind], ["progress", "done"]);
  const failed = (await answerOf(served, "PUT", "/v1/images", { reference: "missing", arch: null })).body;
  assert.equal((failed as { kind: string }).kind, "failed");
  const imported = await answerOf(served, "POST", "/v1/images/import?reference=local/mine", "an archive");
  assert.equal((imported.body as { kind: string }).kind, "done");
  const listed = (await answerOf(served, "GET", "/v1/images")).body as { reference: string }[];
  assert.deepEqual(
    listed.map(({ reference }) => reference),
    ["local/busybox", "app:slow-20", "local/mine"],
  );
  assert.equal((await answerOf(served, "PUT", "/v1/images", { reference: "-x" })).status, 400);
});

test("a route that does not exist is answered with 404", async () => {
  await using served = await startTestLink();
  assert.equal((await answerOf(served, "GET", "/v1/nonsense")).status, 404);
});

test("on a connection with an ingress ports of machines may be opened, and nothing else is served", async () => {
  await using served = await startTestLink();
  const socketPath = `${served.socketPath}.ingress`;
  const listener = createServer((socket) => served.serve(socket, "ingress"));
  await new Promise<void>((resolve) => {
    listener.listen(socketPath, resolve);
  });
  const codeOf = async (method: string, path: string): Promise<string> =>
    ((await call(socketPath, method, path)).body as LinkError).code;
  try {
    assert.equal(await codeOf("POST", `/v1/machines/${A}/dial/80`), "not_running");
    for (const [method, path] of [
      ["PUT", `/v1/machines/${A}`],
      ["POST", `/v1/machines/${A}/exec`],
      ["POST", `/v1/machines/${A}/files/read`],
      ["GET", `/v1/machines/${A}/logs`],
      ["GET", "/v1/images"],
      ["PUT", "/v1/images"],
      ["POST", "/v1/images/import?reference=local/x"],
    ] as const)
      assert.equal(await codeOf(method, path), "not_found", `${method} ${path}`);
  } finally {
    listener.close();
  }
});

test("two disks of running machines are sent at a time, and a point is forgotten when the move has ended", async () => {
  await using link = await startTestLink();
  const body = { generation: 1, state: "running", spec: specOf(A) };
  await answerOf(link, "PUT", `/v1/machines/${A}?waitMs=10000`, body);
  const [first, second] = ["1".repeat(32), "2".repeat(32)];
  const sent = async (part: string) => (await raw(link, `/v1/machines/${A}/outgoing/${part}`)).status;
  assert.equal(await sent("files/disk?from=0"), 409, "its disk may change");
  const taken = [link.node.deps.earlySlots.tryTake(), link.node.deps.earlySlots.tryTake()];
  assert.equal(await sent(`rounds/disk?point=${first}`), 503);
  for (const release of taken) release?.();
  assert.equal(await sent(`rounds/disk?point=${first}`), 200);
  assert.equal(await sent(`rounds/disk?point=${second}&since=${first}`), 200);
  assert.equal(await sent(`rounds/disk?point=${first}&since=${"3".repeat(32)}`), 409);
  assert.equal((await answerOf(link, "DELETE", `/v1/machines/${A}/outgoing`)).status, 200);
  assert.equal(await sent(`rounds/disk?point=${first}&since=${second}`), 409);
  assert.equal(await sent("rounds/disk?point=short"), 400);
  assert.equal(await sent(`files/root?since=${first}`), 400);
});

/** A request whose answer is not a text. */
function raw({ socketPath }: TestLink, path: string): Promise<{ status: number }> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ socketPath, path }, (response) => {
      response.resume().once("end", () => resolve({ status: response.statusCode ?? 0 }));
    });
    request.once("error", reject).end();
  });
}

test("a point is made, answered again, refused with the reason, and released, also when it is unknown", async () => {
  await using link = await startTestLink();
  await link.node.want(A, 1, "running");
  const path = `/v1/points/point-${"1".repeat(32)}`;
  const made = await answerOf(link, "PUT", path, { machineId: A, hasMemory: true });
  assert.equal(made.status, 200);
  assert.deepEqual(await answerOf(link, "PUT", path, { machineId: A, hasMemory: true }), made);
  const refusals = [
    [`/v1/points/point-${"2".repeat(32)}`, machineIdOf("b"), 404, "not_found"],
    [`/v1/points/${"2".repeat(32)}`, A, 400, "invalid"],
  ] as const;
  for (const [other, machineId, status, code] of refusals) {
    const refused = await answerOf(link, "PUT", other, { machineId, hasMemory: true });
    assert.deepEqual([refused.status, (refused.body as LinkError).code], [status, code]);
  }
  await link.node.want(A, 2, "stopped");
  const stopped = await answerOf(link, "PUT", `/v1/points/point-${"2".repeat(32)}`, { machineId: A, hasMemory: true });
  assert.deepEqual([stopped.status, (stopped.body as LinkError).code], [409, "not_running"]);
  for (let times = 0; times < 2; times += 1) assert.equal((await answerOf(link, "DELETE", path)).status, 200);
  assert.equal(link.node.deps.points.list().length, 0);
});
