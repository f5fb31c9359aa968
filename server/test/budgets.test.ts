/**
 * The cost of the whole surface for a server: every endpoint that takes a body or forwards one, called by
 * clients that are slow, send too much, never end, or vanish. The server is a separate process, whose memory
 * and descriptors are measured.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { endpointList } from "@flotilla/contract/endpoints";
import { EXEC_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { Client } from "./support/client.ts";
import { samplePath } from "./support/sample.ts";
import { until } from "../../test/support/until.ts";
import { head, type Wire, wire } from "../../test/support/wire.ts";

const SERVER_MAIN = new URL("../src/main.ts", import.meta.url).pathname;
const MIB = 1024 * 1024;
/** Callers of one endpoint, by each kind of client. */
const CALLERS = 2;
const SENT_BYTES = 2 * MIB;
const MEMORY_MAX = 300 * MIB;
/** Connections to the database come and go. */
const DESCRIPTORS_SPARE = 12;

async function startChild(): Promise<{ readonly child: ChildProcess; readonly client: Client }> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-test-budgets-"));
  const env = { ...process.env, FLOTILLA_DATA_DIR: directory, FLOTILLA_LISTEN: "127.0.0.1:0" };
  const child = spawn(process.execPath, [SERVER_MAIN], {
    // With its own database, which ends with it.
    env: { ...env, DATABASE_URL: "", FLOTILLA_LOG_LEVEL: "silent" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  after(async () => {
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    await ended;
    await rm(directory, { recursive: true, force: true });
  });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const { url, adminKeyFile } = JSON.parse(String(line)) as { url: string; adminKeyFile: string };
  return { child, client: new Client(url, (await readFile(adminKeyFile, "utf8")).trim()) };
}

const { child, client } = await startChild();
const key = client.key ?? "";
const created = await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
const targets = endpointList
  .map(([, endpoint]) => endpoint)
  .filter((endpoint) => endpoint.body !== undefined || endpoint.isBridge === true)
  .filter(({ method, access }) => method !== "GET" && method !== "HEAD" && access !== "public");

async function memoryBytes(): Promise<number> {
  const status = await readFile(`/proc/${child.pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}

const descriptors = async (): Promise<number> => (await readdir(`/proc/${child.pid}/fd`)).length;

type Kind = (one: Wire, endpoint: Endpoint, path: string) => void;

const piece = Buffer.alloc(64 * 1024, 0x20);
const chunk = Buffer.concat([Buffer.from("10000\r\n"), piece, Buffer.from("\r\n")]);

function pump(one: Wire, bytes: Buffer): void {
  for (let sent = 0; sent < SENT_BYTES; sent += bytes.byteLength) one.send(bytes);
}

const KINDS: Readonly<Record<string, Kind>> = {
  slow: (one, { method }, path) => {
    one.send(head(method, path, key, { "content-length": "100000" }));
    one.send("{");
  },
  huge: (one, { method }, path) => {
    one.send(head(method, path, key, { "content-length": String(10 * 1024 * MIB) }));
    pump(one, piece);
  },
  endless: (one, { method }, path) => {
    one.send(head(method, path, key, { "transfer-encoding": "chunked" }));
    pump(one, chunk);
  },
  vanished: (one, { method }, path) => {
    one.send(head(method, path, key, { "content-length": String(MIB) }));
    one.send(piece);
    one.socket.resetAndDestroy();
  },
};

// First, because the server waits for their heads: by the end of the file it must have timed out.
const halves = await Promise.all(Array.from({ length: 20 }, () => wire(client.url, { isDeaf: true })));
for (const half of halves) half.send("GET /livez HTTP/1.1\r\nho");

for (const [name, call] of Object.entries(KINDS)) {
  test(`clients that are ${name} cost a bounded amount of memory, which is freed with their descriptors`, async () => {
    assert.ok(targets.length > 20);
    const before = { memory: await memoryBytes(), descriptors: await descriptors() };
    const wires: Wire[] = [];
    for (const endpoint of targets) {
      for (let caller = 0; caller < CALLERS; caller += 1) {
        const one = await wire(client.url);
        call(one, endpoint, samplePath(endpoint.path, created.json.id));
        wires.push(one);
      }
    }
    const other = await client.get("/v1/me");
    assert.equal(other.status, 200, `another request: ${other.text}`);
    assert.ok((await memoryBytes()) - before.memory < MEMORY_MAX, "while they are there");
    for (const one of wires) one.socket.destroy();
    const isBack = async (): Promise<boolean> => (await descriptors()) <= before.descriptors + DESCRIPTORS_SPARE;
    await until(isBack, { what: "the descriptors to be given back", deadlineMs: 20_000 });
    assert.ok((await memoryBytes()) - before.memory < MEMORY_MAX, "when they are gone");
    for (const one of wires) assert.doesNotMatch(one.received(), /^HTTP\/1\.1 500 /);
  });
}

test("bodies just below the size limit are not all held in memory", async () => {
  const before = { memory: await memoryBytes(), descriptors: await descriptors() };
  const largest = targets.filter(({ body }) => body?.kind === "json" && (body.maxBytes ?? 0) >= EXEC_BODY_BYTES_MAX);
  assert.ok(largest.length > 0);
  const almost = Buffer.alloc(EXEC_BODY_BYTES_MAX - MIB, 0x20);
  const wires: Wire[] = [];
  for (let sent = 0; sent < 2 * MEMORY_MAX; sent += almost.byteLength) {
    const { method = "POST", path = "" } = largest[wires.length % largest.length] ?? {};
    const one = await wire(client.url);
    one.send(head(method, samplePath(path, created.json.id), key, { "content-length": String(EXEC_BODY_BYTES_MAX) }));
    one.send(almost);
    wires.push(one);
  }
  const isTaken = (): boolean => wires.every(({ socket }) => socket.writableLength === 0);
  await until(isTaken, { what: "everything to be sent", deadlineMs: 30_000 });
  assert.ok((await memoryBytes()) - before.memory < MEMORY_MAX);
  for (const one of wires) one.socket.destroy();
  await until(async () => (await descriptors()) <= before.descriptors + DESCRIPTORS_SPARE, { deadlineMs: 20_000 });
});

test("requests that are not HTTP leave no descriptor open, though their clients never close", async () => {
  const before = await descriptors();
  const broken = await Promise.all(Array.from({ length: 100 }, () => wire(client.url, { isDeaf: true })));
  for (const one of broken) one.send("\0\0 nonsense\r\n\r\n");
  await until(() => broken.every(({ isClosed }) => isClosed()), {
    what: "all of them to be closed",
    deadlineMs: 20_000,
  });
  await until(async () => (await descriptors()) <= before + DESCRIPTORS_SPARE);
});

test("heads that do not arrive time out", async () => {
  const areGone = () => halves.every(({ isClosed }) => isClosed());
  await until(areGone, { what: "the connections to be closed", deadlineMs: 40_000 });
  for (const half of halves) assert.match(half.received(), /^HTTP\/1\.1 408 /);
});
