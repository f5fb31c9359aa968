/**
 * E2B's client for Python, replayed: what it sends, byte by byte, to the gateway, and the answers as it reads
 * them. Its package is in no registry that this project uses.
 *
 * It is stricter than the one for JavaScript: it takes exactly the documented status of a success, needs each
 * required field, and reads the code of an error of a service as text.
 */
import assert from "node:assert/strict";
import { dirname } from "node:path";
import { after, before, test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { systemClock } from "@flotilla/base/clock";
import { type Gateway, startGateway } from "../../gateway/e2b/src/gateway.ts";
import { createLog } from "../../server/src/log.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { e2bEnvironment, onHost, startHostHelper } from "./fixture.ts";
import { type Form, get, rest, type SandboxDoor, stream, unary, upload, uploadBytes } from "./python-wire.ts";

let flotilla: Flotilla;
let gateway: Gateway;
let key: string;

before(async () => {
  flotilla = await startFlotilla();
  const listen = { host: "127.0.0.1", port: 0 };
  const own = {
    secret: Buffer.alloc(32, 1),
    dataDirectory: flotilla.directory,
    clock: systemClock,
    log: createLog("error"),
  };
  gateway = await startGateway({ url: flotilla.urls[0] ?? "", listen, domain: null, ...own });
  e2bEnvironment(gateway.url, flotilla.client().key ?? "");
  key = process.env["E2B_API_KEY"] ?? "";
});

after(async () => {
  await gateway?.close();
  await flotilla?.[Symbol.asyncDispose]();
});

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
const METADATA = { "a b": "c&d" };
/** As it arrives: the value is encoded three times. */
const FILTER = "metadata=a%252520b%3Dc%252526d";

/** The calls of each form that create a sandbox and connect to it. */
const PATHS: Readonly<Record<Form, { readonly create: string; readonly connect: (id: string) => string }>> = {
  older: { create: "/sandboxes", connect: (id) => `/sandboxes/${id}/connect` },
  newer: { create: "/v2/sandboxes", connect: (id) => `/v2/sandboxes/${id}/connect` },
};

function bodyOf(form: Form, helper: Parameters<typeof onHost>[0]): object {
  const { template, envs } = onHost(helper);
  const common = { templateID: template, metadata: METADATA, envVars: envs };
  if (form === "newer") return common;
  const defaults = { autoPause: false, autoResume: { enabled: false }, allow_internet_access: true, secure: true };
  return { ...common, ...defaults, timeout: 300 };
}

const has = (value: object, ...names: readonly string[]): void => {
  for (const name of names) assert.ok(name in value, `${name} is missing in ${JSON.stringify(value)}`);
};

for (const form of ["older", "newer"] as const) {
  test(`the ${form} form of the client for Python finds what it expects`, async (t) => {
    await using helper = await startHostHelper();
    const { url } = gateway;
    const call = rest(url, form, key);
    const made = await call("POST", PATHS[form].create, bodyOf(form, helper));
    assert.equal(made.status, 201, made.body.toString());
    const created = made.json<Record<string, string>>();
    has(created, "templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken");
    const { sandboxID: id = "", envdAccessToken: token = "" } = created;
    const door: SandboxDoor = { url, form, id, token };

    await t.test("the sandbox is shown, listed by its metadata, and its end is moved", () => control(door, call));
    await t.test("files are written as forms and as bytes, and read, listed, moved and removed", () => files(door));
    await t.test("commands run, get input and signals, and are found again", () => commands(door));
    await t.test("a directory is watched by asking", () => watching(door));
    await t.test("it is paused, connected to and killed, with the statuses that the client takes", async () => {
      assert.equal((await call("POST", `/sandboxes/${id}/pause`, { memory: true })).status, 204);
      assert.deepEqual(coded(await call("POST", `/sandboxes/${id}/pause`, { memory: true })), [409, 409, "string"]);
      const again = await call("POST", PATHS[form].connect(id), { timeout: 300 });
      assert.equal(again.status, 201, again.body.toString());
      has(again.json(), "templateID", "sandboxID", "clientID", "envdVersion");
      assert.equal((await call("POST", PATHS[form].connect(id), { timeout: 300 })).status, 200);
      assert.equal((await call("DELETE", `/sandboxes/${id}`)).status, 204);
      for (const gone of [id, "notasandbox"])
        assert.deepEqual(coded(await call("DELETE", `/sandboxes/${gone}`)), [404, 404, "string"]);
      assert.equal((await get(door, "/health")).status, 502);
      assert.equal((await unary(door, "process.Process/List", {})).status, 502);
    });
  });
}

/** The status, the code and the type of the message: the client reads the body first, and needs both. */
function coded(answer: { readonly status: number; json<T>(): T }): readonly unknown[] {
  const { code, message } = answer.json<{ code: unknown; message: unknown }>();
  return [answer.status, code, typeof message];
}

async function control({ id, url, form, ...door }: SandboxDoor, call: ReturnType<typeof rest>): Promise<void> {
  const shown = await call("GET", `/sandboxes/${id}`);
  assert.equal(shown.status, 200);
  const detail = shown.json<Record<string, string>>();
  has(detail, "templateID", "sandboxID", "clientID", "cpuCount", "memoryMB", "diskSizeMB", "envdVersion", "state");
  for (const name of ["startedAt", "endAt"]) assert.match(String(detail[name]), INSTANT);
  const listed = await call("GET", `/v2/sandboxes?limit=1&${FILTER}&state=running%2Cpaused`);
  assert.equal(listed.status, 200);
  const [found] = listed.json<Record<string, unknown>[]>();
  assert.deepEqual([found?.["sandboxID"], found?.["metadata"]], [id, METADATA]);
  assert.equal(listed.headers["x-next-token"], undefined);
  assert.equal((await call("POST", `/sandboxes/${id}/timeout`, { timeout: 600 })).status, 204);
  const metrics = await call("GET", `/sandboxes/${id}/metrics`);
  assert.deepEqual([metrics.status, Array.isArray(metrics.json())], [200, true]);
  for (const unknown of [rest(url, form, null), rest(url, form, "e2b_00")])
    assert.deepEqual(coded(await unknown("GET", `/sandboxes/${id}`)), [401, 401, "string"]);
  const refused = await call("POST", PATHS[form].create, { templateID: "local/none" });
  assert.deepEqual(coded(refused), [refused.status, refused.status, "string"]);
  assert.match(`${refused.status} ${refused.body.toString()}`, /^4.*none/);
  assert.equal((await get({ id, url, form, ...door }, "/health")).status, 204);
}

async function files(door: SandboxDoor): Promise<void> {
  const content = Buffer.from("kept é\n");
  const written = await upload(door, "?path=hello.txt", [["hello.txt", content]]);
  assert.equal(written.status, 200, written.body.toString());
  const [{ path = "", name, type } = {}] = written.json<Record<string, string>[]>();
  assert.deepEqual([name, type, path.startsWith("/")], ["hello.txt", "file", true]);
  const home = dirname(path);
  const several = await upload(door, "", [
    ["a b/é.txt", content],
    [`${home}/python-sdk/x.bin`, Buffer.from([0, 255, 13, 10, 0])],
    ['quote".txt', content],
  ]);
  assert.deepEqual(
    several.json<{ path: string }[]>().map((each) => each.path.replace(/^.*(a b|quote)/, "$1")),
    ["a b/é.txt", `${home}/python-sdk/x.bin`, 'quote".txt'],
  );
  const query = `?path=${encodeURIComponent(path)}`;
  const read = await get(door, `/files${query}`);
  assert.deepEqual([read.status, decoded(read)], [200, content.toString()]);
  const raw = await get(door, `/files?path=${encodeURIComponent(`${home}/python-sdk/x.bin`)}`);
  assert.deepEqual([...raw.body], [0, 255, 13, 10, 0]);
  const large = Buffer.alloc(1_000_000, "abc\n");
  const compressed = await uploadBytes(door, "?path=large.bin", gzipSync(large), ["Content-Encoding: gzip"]);
  assert.equal(compressed.status, 200, compressed.body.toString());
  const back = await get(door, "/files?path=large.bin", ["Accept-Encoding: gzip"]);
  assert.equal(decoded(back), large.toString());
  assert.deepEqual(coded(await get(door, "/files?path=%2Fnone")), [404, 404, "string"]);
  const tampered = { ...door, token: `${door.token}x` };
  assert.deepEqual(coded(await get(tampered, `/files${query}`)), [401, 401, "string"]);
  await entries(door, path);
}

async function entries(door: SandboxDoor, path: string): Promise<void> {
  const service = (method: string, message: object) => unary(door, `filesystem.Filesystem/${method}`, message);
  const folder = `${dirname(path)}/python-sdk`;
  const stat = await service("Stat", { path });
  const { entry } = stat.json<{ entry: Record<string, unknown> }>();
  assert.equal(stat.status, 200);
  assert.match(String(stat.headers["content-type"]), /^application\/json/);
  has(entry, "name", "type", "path", "size", "mode", "permissions", "owner", "group", "modifiedTime");
  assert.deepEqual([entry["type"], entry["size"], typeof entry["mode"]], ["FILE_TYPE_FILE", "8", "number"]);
  assert.match(String(entry["modifiedTime"]), INSTANT);
  const missing = await service("Stat", { path: "/none" });
  assert.deepEqual([missing.status, missing.json()["code"]], [404, "not_found"]);
  assert.equal((await service("MakeDir", { path: `${folder}/made` })).status, 200);
  const again = await service("MakeDir", { path: `${folder}/made` });
  assert.deepEqual([again.status, again.json()["code"]], [409, "already_exists"]);
  const moved = await service("Move", { source: `${folder}/x.bin`, destination: `${folder}/made/y` });
  assert.equal(moved.json<{ entry: { path: string } }>().entry.path, `${folder}/made/y`);
  const listed = await service("ListDir", { path: folder, depth: 2 });
  const names = listed.json<{ entries: { name: string }[] }>().entries.map(({ name }) => name);
  assert.deepEqual(names, ["made", "y"]);
  const removed = await service("Remove", { path: folder });
  assert.deepEqual([removed.status, removed.json()], [200, {}]);
}

const decoded = ({ headers, body }: { readonly headers: object; readonly body: Buffer }): string =>
  ("content-encoding" in headers ? gunzipSync(body) : body).toString();

const process_ = (command: string) => ({ cmd: "/bin/bash", args: ["-l", "-c", command] });

interface Event {
  readonly start?: { readonly pid: number };
  readonly data?: { readonly stdout?: string; readonly stderr?: string };
  readonly end?: { readonly exitCode?: number; readonly exited?: boolean; readonly status?: string };
}

/** The events, as the client's handle reads them: the first must be that of the start. */
const eventsOf = (messages: readonly Record<string, unknown>[]): readonly Event[] => {
  const events = messages.map((message) => message["event"] as Event & { keepalive?: object });
  assert.ok(events[0]?.start !== undefined, JSON.stringify(messages));
  return events.filter((event) => event.keepalive === undefined);
};

const outputOf = (events: readonly Event[], name: "stdout" | "stderr"): string =>
  Buffer.concat(events.map(({ data }) => Buffer.from(data?.[name] ?? "", "base64"))).toString();

async function commands(door: SandboxDoor): Promise<void> {
  const start = "process.Process/Start";
  const message = { process: process_("echo out; echo é >&2; exit 3"), stdin: false };
  const ran = await stream(door, start, message);
  const events = eventsOf(ran.messages);
  assert.deepEqual([outputOf(events, "stdout"), outputOf(events, "stderr")], ["out\n", "é\n"]);
  const end = events.at(-1)?.end;
  assert.deepEqual([end?.exitCode, end?.exited, end?.status, ran.error], [3, true, "exit status 3", null]);
  const large = await stream(door, start, { process: process_("yes 0123456 | head -c 2000000"), stdin: false });
  assert.equal(outputOf(eventsOf(large.messages), "stdout").length, 2_000_000);
  const late = await stream(door, start, { process: process_("sleep 60"), stdin: false }, { timeoutMs: 500 });
  assert.equal(late.error?.code, "deadline_exceeded");
  const nowhere = { process: { ...process_("true"), cwd: "/none" }, stdin: false };
  assert.equal((await stream(door, start, nowhere)).error?.code, "invalid_argument");
  await fed(door);
}

/** A command that is given input while it runs, is read by a second caller, and is killed. */
async function fed(door: SandboxDoor): Promise<void> {
  const call = (method: string, message: object) => unary(door, `process.Process/${method}`, message);
  const pids = async (): Promise<readonly number[]> =>
    (await call("List", {})).json<{ processes?: { pid: number }[] }>().processes?.map(({ pid }) => pid) ?? [];
  const running = stream(door, "process.Process/Start", { process: process_("cat"), stdin: true }, { timeoutMs: 0 });
  await until(async () => (await pids()).length === 1, { what: "the command" });
  const [pid = 0] = await pids();
  const connected = stream(door, "process.Process/Connect", { process: { pid } });
  const stdin = Buffer.from("typed\n").toString("base64");
  assert.equal((await call("SendInput", { process: { pid }, input: { stdin } })).status, 200);
  assert.deepEqual((await call("SendSignal", { process: { pid }, signal: "SIGNAL_SIGKILL" })).json(), {});
  for (const { messages, error } of await Promise.all([running, connected])) {
    const end = eventsOf(messages).at(-1)?.end;
    assert.deepEqual([end?.exitCode, end?.exited ?? false, end?.status, error], [-1, false, "signal: killed", null]);
  }
  await until(async () => (await pids()).length === 0, { what: "its end" });
  const gone = await call("SendSignal", { process: { pid: 999_999 }, signal: "SIGNAL_SIGKILL" });
  assert.deepEqual([gone.status, gone.json()["code"]], [404, "not_found"]);
}

async function watching(door: SandboxDoor): Promise<void> {
  const call = (method: string, message: object) => unary(door, `filesystem.Filesystem/${method}`, message);
  assert.equal((await call("MakeDir", { path: "watched" })).status, 200);
  const { watcherId } = (await call("CreateWatcher", { path: "watched" })).json<{ watcherId: string }>();
  await upload(door, "?path=watched%2Fnew.txt", [["watched/new.txt", Buffer.from("x")]]);
  const seen: { readonly name: string; readonly type: string }[] = [];
  const hasSeen = async (): Promise<boolean> => {
    const { events = [] } = (await call("GetWatcherEvents", { watcherId })).json<{ events?: typeof seen }>();
    seen.push(...events);
    return seen.some(({ name, type }) => name === "new.txt" && type === "EVENT_TYPE_CREATE");
  };
  await until(hasSeen, { what: "the event" });
  assert.deepEqual((await call("RemoveWatcher", { watcherId })).json(), {});
  const gone = await call("GetWatcherEvents", { watcherId });
  assert.deepEqual([gone.status, gone.json()["code"]], [404, "not_found"]);
}
