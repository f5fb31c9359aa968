/**
 * What a newcomer reads when something is wrong: one line that says what, one that says what to do, in terms
 * of commands and options, and never a stack or a key.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, openSync, writeFileSync, readdirSync, statSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { fileURLToPath } from "node:url";
import { startTestServer } from "../../server/test/support/server.ts";
import { type Reply, reply, replyJson, startPeer } from "../../sdk/test/peer.ts";
import { runCli, temporaryHome } from "./run-cli.ts";

const server = await startTestServer();
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));

interface Wrong {
  readonly argv: readonly string[];
  readonly says: RegExp;
  readonly code?: number;
}

async function ends(t: TestContext, { argv, says, code = 1 }: Wrong, settings: Record<string, string> = environment) {
  const ran = await runCli(t, argv, { environment: settings });
  assert.equal(ran.code, code, `${argv.join(" ")}: ${ran.errors}`);
  assert.match(ran.errors, says, argv.join(" "));
  assert.doesNotMatch(ran.errors, /\n\s+at |\/v1\/|Failed to deserialize/, argv.join(" "));
}

test("what is unknown names the command that lists what is known", async (t) => {
  const listed: readonly (readonly [argv: string, list: string])[] = [
    ["webhook show x", "webhook ls"],
    ["tenant get x", "tenant ls"],
    ["plan get x", "plan ls"],
    ["plan rate x --cpu-hour 1", "plan ls"],
    ["pool claim x", "pool ls"],
    ["checkpoint show x", "checkpoint ls"],
    ["key rm x", "key ls"],
    ["invoice show x", "invoice ls"],
    ["billing credit x 3", "tenant ls"],
    ["node drain x", "node ls"],
    ["authority rm x", "authority ls"],
    ["token rm x", "token ls"],
    ["image pull local/busybox --node x", "image ls"],
    ["webhook replay x --from y", "events --json"],
    ["events --from y", "events --json"],
  ];
  for (const [argv, list] of listed)
    await ends(t, { argv: argv.split(" "), says: new RegExp(`^error: [^]*\`flotilla ${list}\``) });
});

test("a value that is not allowed is named with its option and what is allowed", async (t) => {
  const create = ["machine", "create", "local/busybox"];
  const values: readonly Wrong[] = [
    { argv: [...create, "--name", "a b"], says: /^error: --name must be 1 to 63 letters, digits/ },
    { argv: [...create, "--cpus", "1000"], says: /^error: --cpus must be at most 64\n$/ },
    { argv: [...create, "--memory", "1"], says: /^error: --memory must be at least 128m\n$/ },
    {
      argv: [...create, "--label", "A B=x"],
      says: /^error: --label must not have the name "A B": a name must be 1 to 63 lower-case letters, /,
    },
    { argv: ["pool", "create", "local/busybox", "--size", "1000"], says: /^error: --size must be at most 100\n$/ },
    { argv: ["plan", "create", "x", "--budget-policy", "y"], says: /^error: --budget-policy must be one of none, / },
    { argv: ["tenant", "create", ""], says: /^error: <name> must not be empty\n$/ },
    { argv: ["webhook", "create", "ftp://x"], says: /^error: <address> cannot be used for a webhook/ },
  ];
  for (const each of values) await ends(t, each);
});

test("options that exclude each other, and a change of nothing, are usage errors", async (t) => {
  const usage: readonly Wrong[] = [
    { argv: ["webhook", "set", "x", "--enable", "--disable"], says: /--enable and --disable exclude each other/ },
    { argv: ["webhook", "set", "x", "--type", "a", "--all-types"], says: /--type and --all-types exclude each other/ },
    { argv: ["webhook", "set", "x", "--json"], says: /nothing to change was given/ },
    { argv: ["tenant", "update", "x", "--json"], says: /nothing to change was given/ },
    { argv: ["webhook", "rotate", "x", "--keep-hours", "y"], says: /Expected a whole number/ },
    { argv: ["image", "import", "/tmp", "local/x"], says: /^error: \/tmp is a directory\n/ },
  ];
  for (const each of usage) await ends(t, { ...each, code: 2 });
});

test("events of one machine are found by its name, those of an unknown one are not", async (t) => {
  const source = { type: "image", reference: "local/busybox" };
  await server.client.post("/v1/machines", { source, name: "hello" });
  await server.client.post("/v1/machines", { source, name: "other" });
  const { code, output } = await runCli(t, ["events", "--machine", "hello"], { environment });
  assert.deepEqual([code, String(output).trim().split("\n").length], [0, 1]);
  await ends(t, { argv: ["events", "--machine", "hallo"], says: /no machine called "hallo"\n.*hello.*whole id\n$/ });
});

test("the address of a machine without ports is a failure, also for programs", async (t) => {
  await server.client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" }, name: "closed" });
  const { code, output, errors } = await runCli(t, ["machine", "url", "closed", "--json"], { environment });
  assert.deepEqual([code, String(output)], [1, '{"url":null}\n']);
  assert.match(errors, /^error: closed publishes no port\n/);
});

test("a key that cannot be one is refused and not shown", async (t) => {
  const home = temporaryHome(t);
  const [empty, lines] = [join(home, "empty"), join(home, "lines")];
  writeFileSync(empty, "\n");
  writeFileSync(lines, "smk_hidden\nsmk_hidden\n");
  const ls = ["machine", "ls"];
  const keys: readonly (readonly [Wrong, Record<string, string>?])[] = [
    [{ argv: ls, says: /^error: the API key from FLOTILLA_API_KEY has / }, { FLOTILLA_API_KEY: "smk_hidden\nx" }],
    [{ argv: ls, says: /^error: the API key from FLOTILLA_API_KEY has / }, { FLOTILLA_API_KEY: "smk_hidden€" }],
    [{ argv: ls, says: /^error: there is no API key in FLOTILLA_API_KEY/ }, { FLOTILLA_API_KEY: " " }],
    [{ argv: [...ls, "--api-key-file", empty], says: /^error: there is no API key in .*empty\n/ }],
    [{ argv: [...ls, "--api-key-file", lines], says: /^error: the API key from .*lines has / }],
    [{ argv: [...ls, "--api-key-file", home], says: /^error: --api-key-file .*: it is a directory\n.*only line/ }],
    [{ argv: [...ls, "--url", "http://me:hidden@127.0.0.1"], says: /^error: --url holds a user or a password\n/ }],
    [{ argv: [...ls, "--url", "http://a b"], says: /^error: --url is "http:\/\/a b", which is not an address\n/ }],
  ];
  for (const [wrong, settings = {}] of keys) {
    await ends(t, { ...wrong, code: 2 }, { ...environment, ...settings });
    assert.doesNotMatch(
      (await runCli(t, wrong.argv, { environment: { ...environment, ...settings } })).errors,
      /hidden/,
    );
  }
  const login = await runCli(t, ["login", "--key-stdin"], { environment, input: "smk_hidden\nx" });
  assert.deepEqual([login.code, /hidden/.test(login.errors)], [2, false]);
});

test("an address whose scheme is the other one, or of another program, says so", async (t) => {
  const tls = createTlsServer().listen(0, "127.0.0.1");
  t.after(() => tls.close());
  await once(tls, "listening");
  const page = await startPeer(t, reply(404, "<html>nothing here</html>"));
  const pageFor200 = await startPeer(t, reply(200, "<html>welcome</html>"));
  const at = (url: string, says: RegExp) => ends(t, { argv: ["machine", "ls", "--url", url], says });
  await at(server.url.replace("http:", "https:"), /does not use TLS\n.*http:\/\/ instead of https:\/\/\n$/);
  await at(`http://127.0.0.1:${portOf(tls)}`, /cannot reach Flotilla at .*\n.*begins with https:\/\/\n$/);
  await at("http://nowhere.invalid", /the host is unknown\n/);
  await at(page.url, /^error: http:\S+ answered 404 with a page that is not Flotilla's\n.*--url/);
  await at(pageFor200.url, /: what answers there is not Flotilla\n.*--url/);
});

test("a connection that breaks before the answer says whether the call may have had an effect", async (t) => {
  const machines = replyJson([{ id: "mach-1", name: "hello" }]);
  const half: Reply = (_arrived, answer) => {
    answer.writeHead(200, { "content-length": "1000" });
    answer.write("{", () => answer.destroy());
  };
  const reset: Reply = (_arrived, answer) => void answer.socket?.resetAndDestroy();
  for (const breaks of [half, reset]) {
    const { url } = await startPeer(t, (arrived, answer) =>
      (arrived.method === "GET" && arrived.url === "/v1/machines" ? machines : breaks)(arrived, answer),
    );
    const at = (says: RegExp, ...argv: readonly string[]) =>
      ends(t, { argv, says }, { ...environment, FLOTILLA_URL: url });
    const unknown = /^error: the connection to Flotilla at http:\S+ broke .*; the result is unknown\n +check it before/;
    await at(unknown, "machine", "create", "alpine");
    await at(unknown, "machine", "exec", "hello", "--no-stream", "--", "true");
    await at(
      /^error: cannot reach Flotilla at \S+ the connection broke before its answer came\n +try again/,
      "node",
      "ls",
    );
  }
});

test("a call that a server of an earlier release does not have says so", async (t) => {
  const text = { "content-type": "text/plain" };
  const method = await startPeer(
    t,
    reply(405, "DELETE is not served", { ...text, "x-error-code": "method_not_allowed" }),
  );
  const noPath = { detail: "no such path", code: "not_found", details: { resource: { kind: "path" } } };
  const path = await startPeer(t, replyJson(noPath, 404));
  for (const { url } of [method, path])
    await ends(t, {
      argv: ["image", "rm", "a", "--url", url],
      says: /\n.*earlier release than this program.*`flotilla version`/,
    });
});

test("output that cannot be written is an error without a stack", () => {
  const { status, stderr } = spawnSync(process.execPath, [MAIN, "--help"], {
    stdio: ["ignore", openSync("/dev/full", "w"), "pipe"],
    encoding: "utf8",
  });
  assert.deepEqual([status, stderr], [1, "error: the output cannot be written: the disk is full\n"]);
});

test("no other user may write the compiled program, whatever the umask", (t) => {
  const cache = join(temporaryHome(t), "cache");
  const launcher = join(import.meta.dirname, "../../flotilla");
  const { NODE_COMPILE_CACHE: _, ...environment } = process.env;
  const env = { ...environment, FLOTILLA_CACHE_DIR: cache };
  spawnSync("sh", ["-c", `umask 000; exec ${launcher} --help`], { env, stdio: "ignore" });
  const made = readdirSync(cache, { recursive: true, encoding: "utf8" });
  assert.ok(made.length > 1, "it is kept");
  for (const name of ["", ...made]) assert.equal(statSync(join(cache, name)).mode & 0o002, 0, name);
});

test("help is understood where other programs have it", async (t) => {
  for (const [asked, flag] of [
    [["help"], ["--help"]],
    [
      ["help", "machine"],
      ["machine", "--help"],
    ],
    [
      ["machine", "help"],
      ["machine", "--help"],
    ],
    [
      ["help", "machine", "create"],
      ["machine", "create", "--help"],
    ],
  ] as const) {
    const [one, other] = [await runCli(t, asked), await runCli(t, flag)];
    assert.deepEqual([one.code, one.errors, String(one.output)], [0, "", String(other.output)]);
  }
});

test("up names a data directory that cannot be used, and a doctor calls it bad", async (t) => {
  const home = temporaryHome(t);
  const file = join(home, "file");
  writeFileSync(file, "");
  const settings = { HOME: home, FLOTILLA_DRIVER: "fake", FLOTILLA_LISTEN: "127.0.0.1:0" };
  for (const path of [file, join(file, "below"), "/proc/foo", "/proc"]) {
    const says = /^error: the data directory \S+ cannot be used: .*\n.*--data-dir DIRECTORY or FLOTILLA_DATA_DIR\n$/;
    await ends(t, { argv: ["up", "--data-dir", path], says, code: 2 }, settings);
  }
  const doctor = ["doctor", "--data-dir", file, "--url", "http://127.0.0.1:2"];
  assert.match(String((await runCli(t, doctor)).output), /^bad {3}disk .*file: it is not a directory$/m);
});

test("up at an address in use by another program does not advise to use that one", async (t) => {
  const other = createServer().listen(0, "127.0.0.1");
  t.after(() => other.close());
  await once(other, "listening");
  const home = temporaryHome(t);
  mkdirSync(join(home, "data"));
  const argv = ["up", "--listen", `127.0.0.1:${portOf(other)}`, "--data-dir", join(home, "data")];
  const says =
    /^error: \S+ is in use by another program\n +stop that program, or choose another port: --listen \S+:\d+\n$/;
  await ends(t, { argv, says }, { HOME: home, FLOTILLA_DRIVER: "fake" });
});

const portOf = (listening: Server): number => (listening.address() as AddressInfo).port;
