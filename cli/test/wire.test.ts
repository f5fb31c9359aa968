/**
 * The command line against a test server: what it sends, what it prints and how it ends, where a real server
 * would not show it (an answer of exact bytes, a refusal of every kind, a start that takes too long).
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Reply, reply, replyJson, startPeer } from "../../sdk/test/peer.ts";
import { type RunOptions, runCli, startCli, temporaryHome } from "./run-cli.ts";

const ID = `mach-${"ab".repeat(16)}`;
const MACHINE = {
  id: ID,
  name: "hello",
  source: { type: "image", reference: "local/busybox" },
  state: "started",
  resources: { cpus: 4, memoryMb: 8192, diskGb: 20 },
  network: { mode: "open" },
  env: {},
  ephemeral: false,
  createdAt: "2026-01-01T00:00:00.000Z",
  updatedAt: "2026-01-01T00:00:00.000Z",
  autoStopSeconds: null,
  lastActivityAt: null,
  ttlSeconds: null,
  workdir: null,
  ready: true,
  readyAt: null,
  ports: [],
  url: null,
  arch: null,
  error: null,
  labels: {},
  createdBy: null,
  forkable: false,
  branchable: false,
  public: false,
  command: null,
  nodeId: null,
};

const execAnswer = (stdout: Uint8Array, stderr: Uint8Array, exitCode: number) => ({
  stdout: "",
  stderr: "",
  exitCode,
  durationMs: 1,
  machineId: ID,
  stdoutTruncated: false,
  stderrTruncated: false,
  stdoutB64: Buffer.from(stdout).toString("base64"),
  stderrB64: Buffer.from(stderr).toString("base64"),
});

/** The same as an event stream, with each output in pieces. */
const execStreamed = (stdout: Uint8Array, stderr: Uint8Array, exitCode: number): Reply => {
  const events = (name: string, bytes: Uint8Array): string => {
    const pieces = Array.from({ length: Math.ceil(bytes.length / 7000) }, (_, n) =>
      bytes.slice(n * 7000, n * 7000 + 7000),
    );
    return pieces.map((piece) => `event: ${name}\ndata: ${Buffer.from(piece).toString("base64")}\n\n:\n\n`).join("");
  };
  const exit = `event: exit\ndata: ${JSON.stringify({ exitCode })}\n\n`;
  return reply(200, events("stdout", stdout) + events("stderr", stderr) + exit, {
    "content-type": "text/event-stream",
  });
};

/** The command line, and a peer that answers each endpoint (`GET /v1/machines`) with a given reply. */
async function against(t: TestContext, routes: Readonly<Record<string, Reply>>) {
  const peer = await startPeer(t, (arrived, answer) => {
    const route = routes[`${arrived.method} ${arrived.url.replace(/\?.*/, "")}`] ?? reply(404, "not found");
    route(arrived, answer);
  });
  const environment = { FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_test" };
  return {
    peer,
    run: (argv: readonly string[], options: RunOptions = {}) =>
      runCli(t, argv, { ...options, environment: { ...environment, ...options.environment } }),
  };
}

test("exec writes each output byte for byte and ends with the command's exit code", async (t) => {
  const stdout = Uint8Array.from({ length: 100_000 }, (_, index) => index % 256);
  const { peer, run } = await against(t, {
    "GET /v1/machines": replyJson([MACHINE]),
    [`POST /v1/machines/${ID}/exec`]: replyJson(execAnswer(stdout, new Uint8Array([0, 255, 27]), 42)),
    [`POST /v1/machines/${ID}/exec/stream`]: execStreamed(stdout, new Uint8Array([0, 255, 27]), 42),
  });
  const paths: readonly [options: string[], path: string][] = [
    [[], "exec/stream"],
    [["--no-stream"], "exec?output=b64"],
    [["--background"], "exec?output=b64"],
  ];
  for (const [options, path] of paths) {
    const argv = ["machine", "exec", ...options, "hello", "--", "sh", "-c", "x | y", "--cwd"];
    const { code, output, errors } = await run(argv);
    assert.equal(code, 42);
    assert.equal(sha256(output), sha256(stdout));
    assert.equal(errors, new TextDecoder().decode(new Uint8Array([0, 255, 27])));
    const sent = peer.arrived.at(-1);
    assert.equal(sent?.url, `/v1/machines/${ID}/${path}`);
    assert.deepEqual(JSON.parse(String(sent?.body)).command, ["sh", "-c", "x | y", "--cwd"]);
  }
});

test("a single argument is a line for the shell, and a streamed answer has a form for programs", async (t) => {
  const nothing = new Uint8Array();
  const { peer, run } = await against(t, {
    [`POST /v1/machines/${ID}/exec/stream`]: execStreamed(new Uint8Array([255]), nothing, 7),
  });
  const { code, output } = await run(["machine", "exec", ID, "a | b", "--json", "--stream"]);
  assert.equal(code, 7);
  assert.equal(String(output), '{"event":"stdout","dataB64":"/w=="}\n{"event":"exit","exitCode":7}\n');
  assert.deepEqual(JSON.parse(String(peer.arrived[0]?.body)), { command: "a | b" });
});

test("a stream that ends without an exit, or with an error, is a failure and never a success", async (t) => {
  const begun = "event: stdout\ndata: aGk=\n\n";
  const breaks: Reply = (_arrived, answer) => void answer.write(begun, () => answer.destroy());
  const ends: readonly [Reply, RegExp][] = [
    [reply(200, begun), /^error: the stream ended before the command's exit/],
    [reply(200, `${begun}event: error\ndata: the node broke\n\n`), /^error: the node broke\n/],
    [breaks, /^error: the connection broke while the command ran; its result is unknown\n$/],
  ];
  for (const [end, expected] of ends) {
    const { run } = await against(t, { [`POST /v1/machines/${ID}/exec/stream`]: end });
    const { code, output, errors } = await run(["machine", "exec", ID, "x"]);
    assert.deepEqual([code, String(output)], [1, "hi"]);
    assert.match(errors, expected);
  }
});

test("where the image has no shell, exec says how one argument runs as a program", async (t) => {
  const nothing = new Uint8Array();
  const missing = Buffer.from("executable file 'sh' not found in $PATH: No such file or directory\n");
  const { run, peer } = await against(t, {
    [`POST /v1/machines/${ID}/exec/stream`]: execStreamed(nothing, missing, 255),
    [`POST /v1/machines/${ID}/exec`]: replyJson(execAnswer(nothing, missing, 255)),
  });
  for (const options of [[], ["--no-stream"]]) {
    const { code, errors } = await run(["machine", "exec", ...options, ID, "--", "/app"]);
    assert.equal(code, 255);
    assert.match(errors, /^executable file 'sh' not found[^\n]*\nflotilla: .* its image has none: add --no-shell\n$/);
  }
  const { errors } = await run(["machine", "exec", "--no-shell", ID, "--", "/app"]);
  assert.equal(errors, missing.toString());
  const commands = peer.arrived.map(({ body }) => (JSON.parse(body.toString()) as { command: unknown }).command);
  assert.deepEqual(commands, ["/app", "/app", ["/app"]]);
});

test("exec passes piped text on, byte for byte, and refuses input that the API cannot carry", async (t) => {
  const nothing = new Uint8Array();
  const { peer, run } = await against(t, {
    [`POST /v1/machines/${ID}/exec/stream`]: execStreamed(nothing, nothing, 0),
  });
  const argv = ["machine", "exec", ID, "--", "cat"];
  const text = "\ufefflines\r\nünd\0\n";
  assert.equal((await run(argv, { input: text })).code, 0);
  assert.equal(JSON.parse(String(peer.arrived[0]?.body)).stdin, text);
  assert.equal((await run([...argv.slice(0, 3), "--no-stdin", ...argv.slice(3)], { input: text })).code, 0);
  assert.equal("stdin" in JSON.parse(String(peer.arrived[1]?.body)), false);
  const refused = await run(argv, { input: new Uint8Array([0xc3, 0x28]) });
  assert.equal(refused.code, 1);
  assert.match(refused.errors, /not UTF-8 text[^]*base64/);
  assert.equal(peer.arrived.length, 2);
});

test("a line in a session is sent to it, and a missing session is created", async (t) => {
  const nothing = new Uint8Array();
  let isThere = false;
  const { peer, run } = await against(t, {
    [`POST /v1/machines/${ID}/sessions/mine/exec`]: (arrived, answer) =>
      (isThere ? execStreamed(Buffer.from("there\n"), nothing, 4) : reply(404, "no session"))(arrived, answer),
    [`POST /v1/machines/${ID}/sessions`]: (arrived, answer) => {
      isThere = true;
      replyJson({ id: "mine" })(arrived, answer);
    },
  });
  const { code, output } = await run(["machine", "exec", "--session", "mine", ID, "pwd"]);
  assert.deepEqual([code, String(output)], [4, "there\n"]);
  assert.deepEqual(
    peer.arrived.map(({ url, body }) => [url.replace(/.*sessions/, ""), JSON.parse(String(body))]),
    [
      ["/mine/exec", { command: "pwd", stream: true }],
      ["", { id: "mine" }],
      ["/mine/exec", { command: "pwd", stream: true }],
    ],
  );
  const refused = await run(["machine", "exec", "-it", "--session", "mine", ID, "pwd"]);
  assert.match(refused.errors, /--tty excludes .*--session/);
});

test("code is sent unchanged, in the language of the file's name or of --language", async (t) => {
  const home = temporaryHome(t);
  const code = "print('''a\r\n\"$x\"''')\n";
  writeFileSync(join(home, "script.py"), code);
  const { peer, run } = await against(t, {
    [`POST /v1/machines/${ID}/code`]: replyJson(execAnswer(Buffer.from("out"), Buffer.from("err"), 3)),
  });
  const ran = await run(["machine", "code", "-w", "/srv", "-e", "A=1", ID, "script.py"], { directory: home });
  assert.deepEqual([ran.code, String(ran.output), ran.errors], [3, "out", "err"]);
  const piped = await run(["machine", "code", ID, "-", "--language", "node", "--timeout", "5s"], { input: "1" });
  assert.equal(piped.code, 3);
  assert.deepEqual(
    peer.arrived.map(({ body }) => JSON.parse(String(body))),
    [
      { language: "python", code, cwd: "/srv", env: { A: "1" } },
      { language: "node", code: "1", timeoutSeconds: 5 },
    ],
  );
  const unnamed = await run(["machine", "code", ID, "-"], { input: "1" });
  assert.deepEqual([unnamed.code, /--language python/.test(unnamed.errors)], [2, true]);
  const missing = await run(["machine", "code", ID, "none.py"], { directory: home });
  assert.match(missing.errors, /^error: none\.py: no such file or directory\n/);
});

test("with --json every verb prints the API's answer and nothing else", async (t) => {
  const answers: Readonly<Record<string, unknown>> = {
    "GET /v1/machines": [MACHINE],
    [`GET /v1/machines/${ID}`]: MACHINE,
    [`GET /v1/machines/${ID}/events`]: [],
    [`POST /v1/machines/${ID}/start`]: MACHINE,
    [`POST /v1/machines/${ID}/stop`]: MACHINE,
    [`POST /v1/machines/${ID}/exec`]: execAnswer(new Uint8Array([1]), new Uint8Array(), 3),
    "POST /v1/machines": MACHINE,
    "GET /v1/apikeys": [],
    "POST /v1/apikeys": { id: "key-1", key: "smk_1" },
    "GET /v1/images": [],
    "GET /v1/nodes": [],
    [`GET /v1/machines/${ID}/sessions`]: [],
  };
  const { run } = await against(
    t,
    Object.fromEntries(Object.entries(answers).map(([route, answer]) => [route, replyJson(answer)])),
  );
  const calls: readonly [argv: readonly string[], route: string, code?: number][] = [
    [["machine", "ls"], "GET /v1/machines"],
    [["machine", "get", ID], `GET /v1/machines/${ID}`],
    [["machine", "events", ID], `GET /v1/machines/${ID}/events`],
    [["machine", "create", "alpine", "--start"], `POST /v1/machines/${ID}/start`],
    [["machine", "create", "alpine"], "POST /v1/machines"],
    [["machine", "start", ID], `POST /v1/machines/${ID}/start`],
    [["machine", "stop", ID], `POST /v1/machines/${ID}/stop`],
    [["machine", "exec", ID, "true"], `POST /v1/machines/${ID}/exec`, 3],
    [["key", "ls"], "GET /v1/apikeys"],
    [["key", "create"], "POST /v1/apikeys"],
    [["image", "ls"], "GET /v1/images"],
    [["node", "ls"], "GET /v1/nodes"],
    [["machine", "sessions", ID], `GET /v1/machines/${ID}/sessions`],
  ];
  for (const [argv, route, expected = 0] of calls) {
    const { code, output, errors } = await run([...argv, "--json"]);
    assert.equal(code, expected, `${argv.join(" ")}: ${errors}`);
    assert.deepEqual(JSON.parse(String(output)), answers[route], argv.join(" "));
    assert.equal(errors, "", argv.join(" "));
  }
});

test("a refusal ends with 1, a line that says what happened and one that says what to do", async (t) => {
  const codes: readonly [Reply, RegExp][] = [
    [reply(401), /^error: the call needs an API key\n {7}`flotilla login`.*\n$/],
    [
      reply(401, '{"code":"unknown_key","error":"unknown API key"}'),
      /^error: unknown API key\n.*FLOTILLA_API_KEY.*\n$/,
    ],
    [
      reply(422, "machine count quota exceeded", { "x-error-code": "quota_exceeded" }),
      /^error: machine count quota.*\n$/,
    ],
    [
      reply(500, "a fault", { "x-error-code": "internal", "x-request-id": "r-1" }),
      /a fault \[request id: r-1\]\n.*log.*\n$/,
    ],
    [reply(409, "a\x1b[2Jb\nc"), /^error: ab c\n$/],
  ];
  for (const [answer, expected] of codes) {
    const { run } = await against(t, { "POST /v1/machines": answer });
    const { code, output, errors } = await run(["machine", "create", "alpine"]);
    assert.equal(code, 1);
    assert.equal(String(output), "");
    assert.match(errors, expected);
  }
});

test("no server, a usage error and a bad setting each end with what to do", async (t) => {
  const closed = { FLOTILLA_URL: await unusedUrl() };
  const calls: readonly [argv: string[], code: number, errors: RegExp, environment?: Record<string, string>][] = [
    [
      ["machine", "ls"],
      1,
      /cannot reach Flotilla at http:\/\/127.0.0.1:\d+: nothing listens there\n.*npm start/,
      closed,
    ],
    [["machine", "ls"], 2, /FLOTILLA_URL is "nonsense": expected http/, { FLOTILLA_URL: "nonsense" }],
    [["machine", "ls", "--api-key-file", "/nowhere"], 2, /--api-key-file \/nowhere: no such file/],
    [["machine", "create"], 2, /missing required argument 'image'/],
    [["machine", "create", "a", "--memory", "lots"], 2, /Expected a size such as 512m or 2g/],
    [["machine", "exec", "a", "ls", "-l"], 2, /unknown option '-l'[^]*put -- before the command/],
    [["machine", "explode"], 2, /unknown command 'explode'/],
    [["cp", "a", "b"], 2, /unknown command 'cp'\n\(Did you mean flotilla machine cp\?\)/],
    [["machin"], 2, /unknown command 'machin'\n\(Did you mean machine\?\)/],
    [["up", "--listen", "8080"], 2, /--listen is "8080": expected host:port/],
    [["up"], 2, /FLOTILLA_DRIVER is "vmware": expected one of qemu, fake/, { FLOTILLA_DRIVER: "vmware" }],
    [["server", "--listen", "8080"], 2, /^flotilla server: --listen is "8080": expected host:port/],
    [["ingress"], 2, /^flotilla ingress: DATABASE_URL is not set/],
    [["node", "--driver", "vmware"], 2, /^flotilla node: --driver is "vmware": expected one of qemu, fake/],
    [["backup"], 2, /^flotilla backup: DATABASE_URL is \(hidden\): expected postgres/, { DATABASE_URL: "mysql://db" }],
  ];
  for (const [argv, code, expected, environment = {}] of calls) {
    const ran = await runCli(t, argv, { environment });
    assert.equal(ran.code, code, argv.join(" "));
    assert.match(ran.errors, expected, argv.join(" "));
    assert.equal(String(ran.output), "", argv.join(" "));
  }
});

test("a create whose start fails says that the machine exists and how to remove it", async (t) => {
  const { run } = await against(t, {
    "POST /v1/machines": replyJson(MACHINE, 201),
    [`POST /v1/machines/${ID}/start`]: reply(503, "no such image", { "x-error-code": "start_failed" }),
  });
  const { code, output, errors } = await run(["machine", "create", "nope", "--start"]);
  assert.deepEqual([code, String(output)], [1, ""]);
  assert.match(errors, /^error: no such image\n.*machine events hello.*machine rm hello/);
});

test("rm looks up every name before it deletes the first", async (t) => {
  const { peer, run } = await against(t, {
    "GET /v1/machines": replyJson([MACHINE]),
    [`DELETE /v1/machines/${ID}`]: reply(204),
  });
  const mistyped = await run(["machine", "rm", "hello", "hallo"]);
  assert.equal(mistyped.code, 1);
  assert.match(mistyped.errors, /no machine called "hallo"\n.*there is: hello/);
  assert.ok(peer.arrived.every(({ method }) => method === "GET"));
  const ran = await run(["machine", "rm", "hello", ID.slice(0, 12)]);
  assert.deepEqual([ran.code, String(ran.output)], [0, "hello\n"]);
  assert.equal(peer.arrived.filter(({ method }) => method === "DELETE").length, 1);
});

test("login tries the key, saves it for its owner alone, and saves no key that the server rejects", async (t) => {
  const caller = { tenantName: "default", scopes: ["admin"] };
  const { peer, run } = await against(t, {
    "GET /v1/me": (arrived, answer) =>
      (arrived.headers.authorization === "Bearer smk_good" ? replyJson(caller) : reply(401, '{"code":"unknown_key"}'))(
        arrived,
        answer,
      ),
    "GET /v1/machines": replyJson([]),
  });
  const home = temporaryHome(t);
  const environment = { HOME: home, FLOTILLA_API_KEY: "", FLOTILLA_URL: "" };
  const login = ["login", "--url", peer.url, "--key-stdin"];
  const path = join(home, ".config/flotilla/config.json");
  const bad = await run(login, { environment, input: "smk_bad\n" });
  assert.equal(bad.code, 1);
  assert.match(bad.errors, /does not know this key/);
  assert.throws(() => statSync(path));
  const good = await run(login, { environment, input: "smk_good\n" });
  assert.equal(good.code, 0, good.errors);
  assert.equal(String(good.output), `logged in to ${peer.url} as default, with admin\n`);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.deepEqual(JSON.parse(readFileSync(path, "utf8")), { url: peer.url, apiKey: "smk_good" });
  assert.equal((await run(["machine", "ls"], { environment })).code, 0);
  assert.equal(peer.arrived.at(-1)?.headers.authorization, "Bearer smk_good");
  const noTerminal = await run(["login", "--url", peer.url], { environment });
  assert.match(noTerminal.errors, /no terminal to ask for the key on\n.*--key-stdin/);
});

test("an operation is watched on while its server, or what is behind a proxy, is away", async (t) => {
  const operation = { id: "op-1", kind: "image pull", resource: { kind: "image", id: "x", name: "x" }, error: null };
  let asked = 0;
  const { run } = await against(t, {
    "POST /v1/images/pull": replyJson({ ...operation, status: "running", steps: [] }, 202),
    // The SDK itself repeats a call three times.
    "GET /v1/operations/op-1": (arrived, answer) => {
      const [status, headers] = [asked < 5 ? 502 : 503, { "retry-after": "0" }];
      asked += 1;
      const found = asked > 10 && replyJson({ ...operation, status: "succeeded", steps: [] });
      (found || reply(status, "<html>not now</html>", headers))(arrived, answer);
    },
  });
  const { code, output, errors } = await run(["image", "pull", "x"]);
  assert.deepEqual([code, String(output), errors, asked], [0, "x\n", "image pull of x: op-1\n", 11]);
});

test("events are followed on while the server, or what is behind a proxy, is away", async (t) => {
  const machine = { id: "mach-1", name: "box" };
  const event = (id: string, message: string) => ({
    id,
    cursor: id,
    subject: { kind: "machine", id: machine.id },
    level: "info",
    message,
    createdAt: "2026-01-02T03:04:05.000Z",
  });
  /** The first event, ten refusals (the SDK itself repeats a call three times), the second event, the end. */
  const inTurn = (first: object[], second: object[]): Reply => {
    let asked = 0;
    return (arrived, answer) => {
      asked += 1;
      const away = reply(asked < 6 ? 502 : 503, "<html>not now</html>", { "retry-after": "0" });
      const here = asked === 1 ? replyJson(first) : replyJson(second);
      (asked > 12 ? reply(404) : asked === 1 || asked === 12 ? here : away)(arrived, answer);
    };
  };
  const [one, two] = [event("1", "machine started"), event("2", "machine stopped")];
  const { run } = await against(t, {
    "GET /v1/machines": replyJson([machine]),
    "GET /v1/machines/mach-1/events": inTurn([one], [one, two]),
    "GET /v1/events": inTurn([one], [two]),
  });
  const line = ({ createdAt, message }: typeof one, about: string) => `${createdAt}  info   ${about}${message}\n`;
  const ofMachine = await run(["machine", "events", "box", "--follow"]);
  assert.deepEqual([ofMachine.code, String(ofMachine.output)], [0, line(one, "") + line(two, "")], ofMachine.errors);
  const ofTenant = await run(["events", "--follow"]);
  const whole = line(one, "mach-1  ") + line(two, "mach-1  ");
  assert.deepEqual([ofTenant.code, String(ofTenant.output)], [1, whole], ofTenant.errors);
});

test("local images are removed by name, from all nodes or from one", async (t) => {
  const { peer, run } = await against(t, { "DELETE /v1/images": reply(204) });
  const { code, output } = await run(["image", "rm", "local/a", "local/b:1", "--node", "node-a"]);
  assert.deepEqual([code, String(output)], [0, "local/a\nlocal/b:1\n"]);
  assert.deepEqual(
    peer.arrived.map(({ url }) => url),
    ["/v1/images?reference=local%2Fa&nodeId=node-a", "/v1/images?reference=local%2Fb%3A1&nodeId=node-a"],
  );
});

test("an archive is imported unchanged, and a missing file is reported", async (t) => {
  const { peer, run } = await against(t, { "POST /v1/images/import": replyJson({ reference: "local/x" }) });
  const file = join(temporaryHome(t), "x.tar");
  const bytes = new Uint8Array(300_000).fill(7);
  writeFileSync(file, bytes);
  const { code, output, errors } = await run(["image", "import", file, "local/x", "--node", "n1"]);
  assert.deepEqual([code, String(output)], [0, "local/x\n"], errors);
  assert.equal(peer.arrived[0]?.url, "/v1/images/import?reference=local%2Fx&nodeId=n1");
  assert.equal(sha256(peer.arrived[0]?.body ?? new Uint8Array()), sha256(bytes));
  assert.match((await run(["image", "import", "/nowhere", "local/x"])).errors, /\/nowhere: no such file/);
});

test("a reader that closes the pipe early ends the command silently", async (t) => {
  const peer = await startPeer(t, replyJson(Array(5000).fill(MACHINE)));
  const { child, ran } = startCli(t, ["machine", "ls"], { environment: { FLOTILLA_URL: peer.url } });
  child.stdout?.destroy();
  const { code, errors } = await ran;
  assert.deepEqual([code, errors], [0, ""]);
  assert.equal(peer.arrived.length, 1);
});

/** An address where nothing listens: its server was just closed. */
async function unusedUrl(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return `http://127.0.0.1:${port}`;
}

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
