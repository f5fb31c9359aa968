/**
 * A server and a node whose versions of the link differ: neighbours work together; others refuse each other
 * and say what to do.
 *
 * The other side is played with contract/vectors/link-v1.json, which was recorded from programs of version 1.
 * It names a version after this one that still works with it, and sends a field that only that version knows.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { LINK_VERSION, linkHeader } from "@flotilla/contract/link/version";
import { listenAtSocket, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

type Fields = Record<string, unknown>;
interface Recorded {
  readonly request: Fields;
  readonly answer: Fields;
}

const VECTORS = new URL("../../contract/vectors/link-v1.json", import.meta.url);
const NODE_MAIN = new URL("../../node/src/main.ts", import.meta.url).pathname;
const recorded = JSON.parse(await readFile(VECTORS, "utf8")) as {
  readonly [Name in "register" | "heartbeat" | "running" | "failed" | "stopped" | "absent"]: Recorded;
} & {
  readonly exec: { readonly request: string; readonly answer: string };
  readonly pull: { readonly request: Fields; readonly answer: readonly Fields[] };
  readonly images: { readonly answer: readonly Fields[] };
  /** What reports have carried of one machine, in their order. */
  readonly events: readonly { readonly type: string; readonly data: Fields }[];
  readonly files: { readonly [Name in "write" | "read" | "list" | "missing" | "remove"]: FileCall };
};
/** Bodies in base64. */
interface FileCall {
  readonly request: string;
  readonly status: number;
  readonly facts?: string;
  readonly answer: string;
}
const RECORDED_PATH = "/workspace/note";

const NEXT = { version: LINK_VERSION + 1, lowest: LINK_VERSION };
const FAR = { version: LINK_VERSION + 8, lowest: LINK_VERSION + 7 };
/** What a side of the next version says of itself in each message. */
const LATER = { link: NEXT, mood: "new" };

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;
const directory = await mkdtemp(join(tmpdir(), "flotilla-link-"));
after(() => rm(directory, { recursive: true, force: true }));

async function bodyOf(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

type Answering = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

const playing = (answer: Answering): Server =>
  createServer((request, response) => {
    // A node takes content when it has begun its answer.
    if (request.url?.endsWith("/files/write")) response.flushHeaders();
    bodyOf(request).then(
      (body) => answer(request, response, body),
      () => response.destroy(),
    );
  });

async function listening(answer: Answering): Promise<string> {
  const listener = playing(answer);
  await new Promise<void>((resolve) => {
    listener.listen(0, "127.0.0.1", resolve);
  });
  after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
}

/** Gives the recorded answer to the operation; it must be requested exactly as it was. */
function answerFile(response: ServerResponse, body: Buffer): void {
  const call = Object.values(recorded.files).find(({ request }) => body.equals(Buffer.from(request, "base64")));
  if (call === undefined) return void response.destroy();
  const answer = Buffer.from(call.answer, "base64");
  if (!response.headersSent) {
    const facts = call.facts === undefined ? {} : { "flotilla-file": call.facts };
    response.writeHead(call.status, { ...facts, "content-length": answer.byteLength });
  }
  response.end(answer);
}

/** A node of the next version that gives the recorded answers. */
async function playNode(id: string): Promise<{ readonly report: (more: Fields) => Promise<void> }> {
  const node = playing(({ method, url = "" }, response, body) => {
    if (url.endsWith("/exec")) return void response.end(Buffer.from(recorded.exec.answer, "base64"));
    if (url.includes("/files/")) return answerFile(response, body);
    if (method === "GET") return void response.end(JSON.stringify(recorded.images.answer));
    if (url === "/v1/images")
      return void response.end(recorded.pull.answer.map((line) => `${JSON.stringify(line)}\n`).join(""));
    const { generation, state, spec } = JSON.parse(body.toString()) as Fields & { spec: { image: Fields } | null };
    const name = spec?.image["reference"] === "missing" ? "failed" : (state as "running");
    const machineId = /mach-[0-9a-f]{32}/.exec(url)?.[0];
    response.end(JSON.stringify({ ...recorded[name].answer, mood: "new", machineId, generation }));
  });
  const entry = { ...recorded.register.request, ...LATER, id, address: await listenAtSocket(node) };
  const entered = await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", entry);
  assert.equal(entered.status, 200, entered.text);
  const own = client.withKey(entered.json.credential as string);
  const report = async (more: Fields): Promise<void> => {
    const body = { ...recorded.heartbeat.request, ...LATER, machines: [], ...more };
    const reported = await own.post(`/v1/nodes/${id}/heartbeat`, body);
    assert.equal(reported.status, 200, reported.text);
  };
  await report({});
  return { report };
}

test("a node of the next version runs machines for this server", async () => {
  const node = await playNode("node-next");
  const create = async (reference: string) =>
    (await client.post("/v1/machines", { source: { type: "image", reference } })).json.id as string;
  const id = await create("local/busybox");
  assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
  const ran = (await client.post(`/v1/machines/${id}/exec`, { command: ["echo", "hi"] })).json;
  assert.deepEqual([ran.stdout, ran.exitCode], ["hi\n", 0]);
  const file = `/v1/machines/${id}/files${RECORDED_PATH}`;
  const call = async (method: string, path: string, body?: string) => {
    const headers = { authorization: `Bearer ${server.adminKey.key}` };
    const answer = await fetch(`${server.url}${path}`, { method, headers, ...(body === undefined ? {} : { body }) });
    return [answer.status, await answer.text()];
  };
  assert.deepEqual(await call("PUT", file, "content\n"), [204, ""]);
  assert.deepEqual(await call("GET", file), [200, "content\n"]);
  const [status, entries] = await call("GET", `/v1/machines/${id}/files/workspace?list=true`);
  assert.deepEqual([status, (JSON.parse(String(entries)) as Fields[]).map(({ name }) => name)], [200, ["note"]]);
  assert.deepEqual(await call("GET", `/v1/machines/${id}/files/workspace/none`), [
    404,
    "file not found: workspace/none",
  ]);
  assert.deepEqual(await call("DELETE", file), [204, ""]);
  assert.equal((await client.post("/v1/images/pull", { reference: "app:slow-20" })).status, 202);
  const listed = (await client.get("/v1/images")).json as Fields[];
  assert.deepEqual(listed.map(({ reference }) => reference).toSorted(), ["app:slow-20", "local/busybox"]);
  const later = { sequence: 100, machineId: id, type: "machine.ofNextVersion", data: {}, at: 1 };
  await node.report({ events: [...recorded.events.map((event) => ({ ...event, machineId: id, mood: "new" })), later] });
  const timeline = (await client.get(`/v1/machines/${id}/events`)).json as readonly { type: string; data: Fields }[];
  const types = new Set(recorded.events.map(({ type }) => type));
  assert.deepEqual(
    timeline.filter(({ type }) => types.has(type)).map(({ type, data }) => ({ type, data })),
    recorded.events.map(({ type, data }) => ({ type, data })),
  );
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.state, "stopped");
  const failed = await client.post(`/v1/machines/${await create("missing")}/start`);
  assert.deepEqual([failed.status, failed.headers.get("x-error-code")], [422, "image_not_found"]);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
});

/** A real node agent whose server answers as given; gives the bodies that it posted, and its address. */
async function startAgent(name: string, answers: { readonly register: Fields; readonly heartbeat: Fields }) {
  const posted: { readonly path: string; readonly body: Fields }[] = [];
  const url = await listening(({ url: path = "" }, response, body) => {
    posted.push({ path, body: JSON.parse(body.toString()) as Fields });
    response.end(JSON.stringify(path.endsWith("/register") ? answers.register : answers.heartbeat));
  });
  let log = "";
  const env = {
    ...process.env,
    FLOTILLA_DRIVER: "fake",
    FLOTILLA_DATA_DIR: join(directory, name),
    FLOTILLA_URL: url,
    FLOTILLA_JOIN_TOKEN: TEST_JOIN_TOKEN,
    FLOTILLA_NODE_ID: name,
    FLOTILLA_LOG_LEVEL: "warn",
  };
  const agent: ChildProcess = spawn(process.execPath, [NODE_MAIN], { env, stdio: ["ignore", "pipe", "pipe"] });
  for (const output of [agent.stdout, agent.stderr]) output?.on("data", (chunk) => (log += String(chunk)));
  after(() => agent.kill("SIGKILL"));
  await until(() => posted.length > 0, { deadlineMs: 15_000, what: "the registration of an agent" });
  return { posted, socketPath: String(posted[0]?.body["address"]).slice("unix:".length), log: () => log };
}

function call(
  socketPath: string,
  method: string,
  path: string,
  body: Buffer | object,
  headers: Record<string, string> = {},
) {
  return new Promise<{ readonly status: number; readonly text: string }>((resolve, reject) => {
    const request = httpRequest({ socketPath, method, path, headers }, (response) => {
      void bodyOf(response).then((bytes) => resolve({ status: response.statusCode ?? 0, text: bytes.toString() }));
    });
    request.on("error", reject);
    request.end(method === "GET" ? undefined : Buffer.isBuffer(body) ? body : JSON.stringify(body));
  });
}

/** Every field of the older message is there, with a value of the same type. */
function contains(newer: Fields, older: Fields): void {
  for (const [name, value] of Object.entries(older)) {
    assert.ok(name in newer, `${name} is missing`);
    if (value !== null && newer[name] !== null) assert.equal(typeof newer[name], typeof value, name);
  }
}

/** Without times. */
const plain = (answer: string): string => answer.trim().replaceAll(/\d{13}/g, "");

test("this node runs machines for a server of the next version", async () => {
  const { posted, socketPath } = await startAgent("node-new", {
    register: { ...recorded.register.answer, ...LATER },
    heartbeat: { ...recorded.heartbeat.answer, ...LATER },
  });
  const headers = { "flotilla-link": linkHeader(NEXT) };
  const machineId = recorded.running.request["spec"] && (recorded.running.request["spec"] as Fields)["machineId"];
  for (const name of ["running", "stopped", "running", "absent"] as const) {
    const { request, answer } = recorded[name];
    const generation = (request["generation"] as number) + (name === "running" && posted.length > 2 ? 2 : 0);
    const told = await call(
      socketPath,
      "PUT",
      `/v1/machines/${machineId}?waitMs=5000`,
      { ...request, mood: "new", generation },
      headers,
    );
    assert.ok(told.status === 200 || told.status === 409, told.text);
    contains(JSON.parse(told.text) as Fields, answer);
    if (name === "running" && generation === request["generation"]) {
      assert.equal((JSON.parse(told.text) as Fields)["state"], "running");
      const path = `/v1/machines/${machineId}`;
      const ran = await call(socketPath, "POST", `${path}/exec`, Buffer.from(recorded.exec.request, "base64"), headers);
      assert.match(ran.text, /hi/);
      for (const [operation, { request: sent, status, answer: expected }] of Object.entries(recorded.files)) {
        const url = `${path}/files/${operation === "missing" ? "read" : operation}`;
        const told = await call(socketPath, "POST", url, Buffer.from(sent, "base64"), headers);
        assert.deepEqual(
          [told.status, plain(told.text)],
          [status, plain(Buffer.from(expected, "base64").toString())],
          operation,
        );
      }
    }
  }
  const pulled = await call(socketPath, "PUT", "/v1/images", recorded.pull.request, headers);
  const lines = pulled.text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Fields);
  contains(lines.at(-1) ?? {}, recorded.pull.answer.at(-1) ?? {});
  const images = JSON.parse((await call(socketPath, "GET", "/v1/images", {}, headers)).text) as Fields[];
  contains(images[0] ?? {}, recorded.images.answer[0] ?? {});
  await until(() => posted.some(({ path }) => path.endsWith("/heartbeat")), {
    deadlineMs: 10_000,
    what: "a heartbeat",
  });
  contains(posted[0]?.body ?? {}, recorded.register.request);
  const another = `mach-${"e".repeat(32)}`;
  const ofAnother = { ...(recorded.running.request["spec"] as Fields), machineId: another };
  const spec = { ...ofAnother, image: { reference: "app:slow-10", arch: null } };
  const request = { ...recorded.running.request, spec: { ...spec, command: ["sh", "-c", "exit 3"] } };
  for (const change of [{ generation: 90 }, { generation: 91, state: "stopped", keepsMemory: true }]) {
    const told = await call(socketPath, "PUT", `/v1/machines/${another}?waitMs=5000`, { ...request, ...change });
    assert.equal(told.status, 200, told.text);
  }
  const resumed = { ...request, spec: { ...spec, env: { FAKE_RESUME_FAIL: "1" } }, generation: 92, keepsMemory: true };
  await call(socketPath, "PUT", `/v1/machines/${another}?waitMs=5000`, resumed);
  const events = (): readonly Fields[] => posted.flatMap(({ body }) => (body["events"] ?? []) as readonly Fields[]);
  for (const expected of recorded.events) {
    const sent = (): Fields | undefined => events().find(({ type }) => type === expected.type);
    await until(() => sent() !== undefined, { deadlineMs: 10_000, what: `a report of ${expected.type}` });
    contains(sent() ?? {}, expected);
    contains(sent()?.["data"] as Fields, expected.data);
  }
  contains(posted.find(({ path }) => path.endsWith("/heartbeat"))?.body ?? {}, recorded.heartbeat.request);
});

test("a node that is too new or too old does not enter, and is refused when it reports", async () => {
  const own = client.withKey(TEST_JOIN_TOKEN);
  const link = FAR;
  const entry = { ...recorded.register.request, id: "node-v9", address: "unix:/nowhere/agent.sock" };
  const refused = await own.post("/v1/nodes/register", { ...entry, link });
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [409, "link_version"]);
  assert.match(refused.text, /node node-v9 has version 9 .* upgrade this server, one release at a time/);
  const { credential } = (await own.post("/v1/nodes/register", { ...entry, link: NEXT })).json;
  const report = { ...recorded.heartbeat.request, machines: [], link };
  const later = await client.withKey(credential as string).post("/v1/nodes/node-v9/heartbeat", report);
  assert.deepEqual([later.status, later.headers.get("x-error-code")], [409, "link_version"]);
});

test("an agent whose server is too new says so once, reports nothing and refuses its calls", async () => {
  const link = FAR;
  const agent = await startAgent("node-old", {
    register: { ...recorded.register.answer, link },
    heartbeat: { ...recorded.heartbeat.answer, link },
  });
  const isSaid = (): boolean => agent.log().includes("the server has version 9");
  await until(isSaid, { deadlineMs: 10_000, what: "a line of the agent's log" });
  assert.match(agent.log(), /upgrade this node, one release at a time/);
  assert.ok(!agent.posted.some(({ path }) => path.endsWith("/heartbeat")));
  const { running } = recorded;
  const path = `/v1/machines/${(running.answer as { machineId: string }).machineId}`;
  const refused = await call(agent.socketPath, "PUT", path, running.request, { "flotilla-link": linkHeader(FAR) });
  assert.equal(refused.status, 426);
  assert.equal((JSON.parse(refused.text) as Fields)["code"], "version");
  assert.equal((await call(agent.socketPath, "PUT", path, running.request, { "flotilla-link": "x" })).status, 426);
});

test("a node that refuses the server's version is named to the caller with what to do", async () => {
  const refusing = playing((_, response) => {
    response.writeHead(426).end(JSON.stringify({ code: "version", message: "upgrade the server" }));
  });
  const address = await listenAtSocket(refusing);
  const own = client.withKey(TEST_JOIN_TOKEN);
  const entry = { ...recorded.register.request, id: "node-z", address, link: NEXT };
  const { credential } = (await own.post("/v1/nodes/register", entry)).json;
  await client
    .withKey(credential as string)
    .post("/v1/nodes/node-z/heartbeat", { ...recorded.heartbeat.request, machines: [] });
  const refused = await client.call("POST", "/v1/images/import?reference=local/mine&nodeId=node-z", {
    raw: "archive",
    headers: { "content-type": "application/octet-stream" },
  });
  assert.equal(refused.status, 503, refused.text);
  assert.match(refused.text, /node node-z refused the call: upgrade the server/);
});
