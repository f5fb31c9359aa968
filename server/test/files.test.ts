/**
 * Files over HTTP, through a real node agent and the files of a scripted guest.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { connect } from "node:net";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { startMachineServer } from "./support/machine-server.ts";
import { until } from "../../test/support/until.ts";
import { head, wire } from "../../test/support/wire.ts";

const { server, client, machine } = await startMachineServer();
const MIB = 1024 * 1024;

const shared = await machine();
const sha256 = (content: string | Uint8Array): string => createHash("sha256").update(content).digest("hex");

interface Raw {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

/** Sends the path unchanged, which fetch would not. */
async function raw(
  method: string,
  tail: string,
  options: {
    readonly body?: string | Uint8Array;
    readonly headers?: Record<string, string>;
    readonly id?: string;
  } = {},
): Promise<Raw> {
  const { hostname, port } = new URL(server.url);
  const path = `/v1/machines/${options.id ?? shared}/files${tail}`;
  const headers = { authorization: `Bearer ${server.adminKey.key}`, ...options.headers };
  const sent = httpRequest({ hostname, port, method, path, headers });
  // A server that has refused a body need not read the rest of it.
  sent.on("error", () => undefined);
  sent.end(options.body);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  const body = Buffer.concat(await response.toArray());
  return { status: response.statusCode ?? 0, headers: response.headers, body };
}

test("a stopped machine is started, and every form of the path writes and reads the same file", async () => {
  const forms: readonly [string, string, number][] = [
    ["POST", "?path=/workspace/a.txt", 200],
    ["POST", "?path=workspace/a.txt", 200],
    ["PUT", "/workspace/a.txt", 204],
    ["PUT", "//workspace/a.txt", 204],
    ["POST", "/workspace/a.txt", 200],
  ];
  for (const [method, tail, status] of forms) {
    const content = `${method} ${tail}`;
    const put = await raw(method, tail, { body: content });
    assert.deepEqual([put.status, put.body.toString()], [status, ""], content);
    assert.equal(put.headers["x-content-sha256"], sha256(content));
    for (const [, form] of forms) {
      const got = await raw("GET", form);
      assert.deepEqual([got.status, got.body.toString()], [200, content], form);
      assert.equal(got.headers["content-type"], "application/octet-stream");
      assert.equal(got.headers["content-length"], String(content.length));
      assert.equal(got.headers["x-content-sha256"], sha256(content));
      assert.equal(got.headers["x-file-mode"], "0644");
    }
  }
  assert.equal((await client.get(`/v1/machines/${shared}`)).json.state, "started");
});

test("a compressed body is refused with what to do, and `identity` is not an encoding", async () => {
  const packed = gzipSync("some text");
  for (const [method, tail] of [
    ["POST", "?path=/workspace/packed"],
    ["PUT", "/workspace/packed"],
  ] as const) {
    const refused = await raw(method, tail, { body: packed, headers: { "content-encoding": "gzip" } });
    assert.deepEqual([refused.status, refused.headers["x-error-code"]], [415, "unsupported_encoding"]);
    assert.match(refused.body.toString(), /Content-Encoding "gzip", which is not supported; send it without one/);
  }
  assert.equal((await raw("GET", "/workspace/packed")).status, 404);
  const plain = await raw("PUT", "/workspace/packed", { body: packed, headers: { "content-encoding": "identity" } });
  assert.equal(plain.status, 204);
  assert.deepEqual((await raw("GET", "/workspace/packed")).body, packed);
});

test("a transfer coding other than chunked is refused, and what it made of a body is not written", async () => {
  const isAnswered = async (coding: string, answer: RegExp): Promise<void> => {
    const caller = await wire(server.url);
    const path = `/v1/machines/${shared}/files/workspace/coded`;
    caller.send(`${head("PUT", path, client.key, { "transfer-encoding": coding })}4\r\nabcd\r\n0\r\n\r\n`);
    await until(() => answer.test(caller.received()), { what: `the answer to ${coding}` });
  };
  await isAnswered("gzip, chunked", / 400 [^]*Transfer-Encoding other than chunked/);
  assert.equal((await raw("GET", "/workspace/coded")).status, 404);
  await isAnswered("Chunked", / 204 /);
  assert.equal((await raw("GET", "/workspace/coded")).body.toString(), "abcd");
});

test("an upload that declares no body is an empty file", async () => {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  const answer = once(socket, "data");
  const path = `/v1/machines/${shared}/files/workspace/empty`;
  socket.write(`PUT ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${server.adminKey.key}\r\n\r\n`);
  assert.match(String((await answer).at(0)), /^HTTP\/1.1 204 /);
  socket.destroy();
  const { status, body } = await raw("GET", "/workspace/empty");
  assert.deepEqual([status, body.byteLength], [200, 0]);
});

test("HEAD answers what GET would, without the bytes", async () => {
  await raw("PUT", "/workspace/head", { body: "12345" });
  const { status, headers, body } = await raw("HEAD", "/workspace/head");
  assert.deepEqual([status, headers["content-length"], body.byteLength], [200, "5", 0]);
  assert.match(String(headers["last-modified"]), /GMT$/);
  assert.equal((await raw("HEAD", "/workspace/none")).status, 404);
  assert.equal((await raw("HEAD", "?path=/workspace/head")).headers["content-length"], "5");
});

test("a missing file is not found, by the requested name", async () => {
  const missing = await raw("GET", "/workspace/rt.txt");
  assert.deepEqual([missing.status, missing.body.toString()], [404, "file not found: workspace/rt.txt"]);
  assert.equal((await raw("DELETE", "//workspace/rt.txt")).body.toString(), "file not found: /workspace/rt.txt");
});

test("names may contain anything, escaped or not", async () => {
  const names = [
    "two parts",
    "-rf",
    "größe 📦",
    "100%",
    "a%20b",
    "new\nline",
    "q?x=1&y",
    "semi;colon",
    "plus+plus",
    "...",
  ];
  for (const name of names) {
    const escaped = `/workspace/odd/${encodeURIComponent(name)}`;
    assert.equal((await raw("PUT", escaped, { body: name })).status, 204, name);
    assert.equal((await raw("GET", escaped)).body.toString(), name);
    const query = `?path=${encodeURIComponent(`/workspace/odd/${name}`)}`;
    assert.equal((await raw("GET", query)).body.toString(), name);
  }
  const list = JSON.parse((await raw("GET", "/workspace/odd?list=true")).body.toString()) as { name: string }[];
  assert.deepEqual(
    list.map(({ name }) => name),
    names.toSorted(),
  );
  // Not an escape: used unchanged.
  assert.equal((await raw("GET", "/workspace/odd/100%")).body.toString(), "100%");
});

test("a path through .. means the same for writing and reading", async () => {
  const written = await raw("POST", "?path=/workspace/nowhere/../beside", { body: "beside" });
  assert.equal(written.status, 200);
  for (const tail of ["?path=/workspace/nowhere/../beside", "?path=workspace/beside", "/../workspace/./beside"]) {
    assert.equal((await raw("GET", tail)).body.toString(), "beside", tail);
  }
  assert.equal((await raw("GET", "?path=/workspace/nowhere&list=true")).status, 404);
});

test("a directory whose names are large together is refused, and not held", async () => {
  const id = await machine();
  // Each character takes six in JSON.
  const env = { LONG: "\u0001".repeat(4_000) };
  const command = Array.from({ length: 1_500 }, (_, index) => `echo >/workspace/${index}$LONG`).join("; ");
  const made = await client.post(`/v1/machines/${id}/exec`, { command, env });
  assert.equal(made.json.exitCode, 0, made.text);
  const { status, headers, body } = await raw("GET", "/workspace?list=true", { id });
  assert.equal(status, 409, body.toString("utf8", 0, 200));
  assert.equal(headers["x-error-code"], "conflict");
  assert.match(body.toString(), /the list of .* is larger than/);
});

test("directories are listed, and are not files", async () => {
  await raw("PUT", "/workspace/tree/one", { body: "1" });
  await raw("PUT", "/workspace/tree/deep/two", { body: "22" });
  const { status, headers, body } = await raw("GET", "?path=/workspace/tree&list=true");
  assert.deepEqual([status, headers["content-type"]], [200, "application/json"]);
  const [deep, one] = JSON.parse(body.toString());
  assert.deepEqual([deep.name, deep.kind], ["deep", "directory"]);
  const { modifiedAt, ...facts } = one;
  assert.deepEqual(facts, { name: "one", kind: "file", size: 1, mode: "0644" });
  assert.match(modifiedAt, /^\d{4}-.*Z$/);
  for (const root of ["/?list=true", "//?list=true", "?path=/&list=true"]) {
    const listed = await raw("GET", root);
    assert.equal(listed.status, 200, `${root}: ${listed.body}`);
    assert.ok(JSON.parse(listed.body.toString()).some(({ name }: { name: string }) => name === "workspace"));
  }
  for (const [method, tail, text] of [
    ["GET", "/", /is a directory.*list=true/],
    ["GET", "/workspace/tree", /is a directory.*list=true/],
    ["GET", "/workspace/tree/one?list=true", /not in a directory, or is none/],
    ["PUT", "/workspace/tree", /is a directory/],
    ["PUT", "/workspace/tree/one/x", /not in a directory/],
    ["DELETE", "/workspace/tree", /not empty/],
  ] as const) {
    const refused = await raw(method, tail, { body: method === "PUT" ? "x" : "" });
    assert.equal(refused.status, 409, tail);
    assert.match(refused.body.toString(), text);
  }
});

test("parts of a file, and parts that it does not have", async () => {
  await raw("PUT", "/workspace/digits", { body: "0123456789" });
  const part = (range: string, more = {}) => raw("GET", "/workspace/digits", { headers: { range, ...more } });
  const some = await part("bytes=2-4");
  assert.deepEqual(
    [some.status, some.body.toString(), some.headers["content-range"], some.headers["content-length"]],
    [206, "234", "bytes 2-4/10", "3"],
  );
  assert.equal((await part("bytes=-3")).body.toString(), "789");
  assert.equal((await part("bytes=7-100")).headers["content-range"], "bytes 7-9/10");
  const outside = await part("bytes=10-");
  assert.deepEqual([outside.status, outside.headers["content-range"]], [416, "bytes */10"]);
  assert.deepEqual([(await part("bytes=1-2,4-5")).status, (await part("bytes=x")).status], [200, 200]);
  assert.equal((await part("bytes=2-4", { "if-range": '"x"' })).status, 200);
});

test("a part is answered as long as the file is the one that was read before, and all of it afterwards", async () => {
  await raw("PUT", "/workspace/resumed", { body: "0123456789" });
  const { etag = "", "last-modified": date = "" } = (await raw("GET", "/workspace/resumed")).headers;
  const part = async (range: string, validator: string | string[]) => {
    const { status, body, headers } = await raw("GET", "/workspace/resumed", {
      headers: { range, "if-range": String(validator) },
    });
    return [status, body.toString(), headers["content-range"]];
  };
  assert.deepEqual(await part("bytes=7-", etag), [206, "789", "bytes 7-9/10"]);
  assert.equal((await part("bytes=10-", etag))[0], 416);
  // A file may be written twice in a second.
  assert.deepEqual(await part("bytes=7-", date), [200, "0123456789", undefined]);
  await raw("PUT", "/workspace/resumed", { body: "new" });
  assert.deepEqual(await part("bytes=1-", etag), [200, "new", undefined]);
  assert.deepEqual(await part("bytes=7-", etag), [200, "new", undefined]);
});

test("a file is removed", async () => {
  await raw("PUT", "/workspace/gone", { body: "x" });
  assert.equal((await raw("DELETE", "/workspace/gone")).status, 204);
  assert.equal((await raw("GET", "/workspace/gone")).status, 404);
});

test("a hash in the request is checked before anything is written", async () => {
  await raw("PUT", "/workspace/checked", { body: "old" });
  const put = (hash: string) =>
    raw("PUT", "/workspace/checked", { body: "new", headers: { "x-content-sha256": hash } });
  const wrong = await put(sha256("other"));
  assert.equal(wrong.status, 400);
  assert.match(wrong.body.toString(), /nothing was written/);
  assert.equal((await put("abc")).status, 400);
  const part = await raw("PUT", "/workspace/checked", { body: "PP", headers: { "content-range": "bytes 0-1/5" } });
  assert.equal(part.status, 400);
  assert.match(part.body.toString(), /a file is written whole/);
  assert.equal((await raw("GET", "/workspace/checked")).body.toString(), "old");
  assert.equal((await put(sha256("new").toUpperCase())).status, 204);
  assert.equal((await raw("GET", "/workspace/checked")).body.toString(), "new");
});

test("a link into memory is refused, and so is a file that does not fit", async () => {
  const id = await machine({ env: { FAKE_LINK: "/workspace/link:/tmp/x", FAKE_DISK_BYTES: String(MIB) } });
  const linked = await raw("PUT", "/workspace/link", { id, body: "x" });
  assert.equal(linked.status, 409);
  assert.match(linked.body.toString(), /workspace\/link to \/tmp\/x in memory/);
  assert.equal((await raw("PUT", "/tmp/x", { id, body: "x" })).status, 204);
  const large = await raw("PUT", "/workspace/large", { id, body: randomBytes(8 * MIB) });
  assert.deepEqual([large.status, large.headers["x-error-code"]], [507, "no_space"]);
  assert.match(
    large.body.toString(),
    /nothing was written to workspace\/large: no space is left on the machine's disk/,
  );
  assert.equal((await raw("GET", "/workspace/large", { id })).status, 404);
  assert.equal((await raw("PUT", "/workspace/small", { id, body: "x" })).status, 204);
});

test("invalid paths are refused", async () => {
  for (const [method, tail] of [
    ["GET", ""],
    ["GET", "?path="],
    ["POST", ""],
    ["PUT", "/workspace/"],
    ["PUT", "/workspace/.."],
    ["GET", `/${"x".repeat(5000)}`],
  ] as const) {
    assert.equal((await raw(method, tail, { body: "" })).status, 400, tail.slice(0, 20));
  }
  assert.equal((await raw("GET", "?path=/x&list=perhaps")).status, 422);
  assert.equal((await raw("GET", "?path=a%00b")).status, 422);
  assert.equal((await raw("GET", "?path=/x", { id: "mach-none" })).status, 404);
  assert.equal((await raw("POST", "", { id: "mach-none", body: "x" })).status, 404);
});

test("a machine that cannot start says why", async () => {
  const id = await machine({ env: { FAKE_BOOT_FAIL: "1" } });
  assert.equal((await raw("GET", "/x", { id })).headers["x-error-code"], "start_failed");
  const refused = await raw("PUT", "/x", { id, body: randomBytes(4 * MIB) });
  assert.deepEqual([refused.status, refused.headers["x-error-code"]], [409, "conflict"]);
});

test("a large file uses little memory in the server", async () => {
  const block = randomBytes(MIB);
  const blocks = 256;
  const hash = createHash("sha256");
  let sent = 0;
  let peak = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (sent === blocks) return controller.close();
      sent += 1;
      hash.update(block);
      controller.enqueue(block);
      peak = Math.max(peak, process.memoryUsage().arrayBuffers);
    },
  });
  const url = `${server.url}/v1/machines/${shared}/files//workspace/large`;
  const headers = { authorization: `Bearer ${server.adminKey.key}` };
  const put = await fetch(url, { method: "PUT", headers, body, duplex: "half" });
  const sum = hash.digest("hex");
  assert.deepEqual([put.status, put.headers.get("x-content-sha256")], [204, sum]);
  const got = await fetch(url, { headers });
  const seen = createHash("sha256");
  for await (const chunk of got.body ?? []) {
    seen.update(chunk);
    peak = Math.max(peak, process.memoryUsage().arrayBuffers);
  }
  assert.equal(seen.digest("hex"), sum);
  // Including uncollected garbage, in client and server together; holding the file would take all of it.
  assert.ok(peak < (blocks * MIB * 3) / 4, `${peak} bytes were held`);
  await raw("DELETE", "/workspace/large");
});

test("an upload that breaks off leaves the old file", async () => {
  await raw("PUT", "/workspace/kept", { body: "old" });
  const { hostname, port } = new URL(server.url);
  const path = `/v1/machines/${shared}/files/workspace/kept`;
  const headers = { authorization: `Bearer ${server.adminKey.key}`, "content-length": String(4 * MIB) };
  const sent = httpRequest({ hostname, port, method: "PUT", path, headers });
  const broken = new Promise((resolve) => sent.on("error", resolve));
  sent.write(randomBytes(MIB), () => sent.destroy(new Error("cancelled")));
  await broken;
  assert.equal((await raw("GET", "/workspace/kept")).body.toString(), "old");
  const chunked = httpRequest({
    hostname,
    port,
    method: "PUT",
    path,
    headers: { authorization: headers.authorization },
  });
  const cut = new Promise((resolve) => chunked.on("error", resolve));
  chunked.write(randomBytes(MIB), () => chunked.destroy(new Error("cancelled")));
  await cut;
  assert.equal((await raw("GET", "/workspace/kept")).body.toString(), "old");
});

test("a caller that does not read blocks only its own file", async () => {
  await raw("PUT", "/workspace/slow", { body: randomBytes(16 * MIB) });
  const url = `${server.url}/v1/machines/${shared}/files/workspace/slow`;
  const headers = { authorization: `Bearer ${server.adminKey.key}` };
  const gone = new AbortController();
  await Promise.all(Array.from({ length: 20 }, () => fetch(url, { headers, signal: gone.signal })));
  for (let call = 0; call < 20; call++) assert.equal((await raw("GET", "/workspace/kept")).status, 200);
  gone.abort();
  assert.equal((await raw("GET", "/workspace/slow")).body.byteLength, 16 * MIB);
});

test("memory is empty after a restart, the disk is not, and files count as use", async () => {
  const id = await machine();
  for (const path of ["/tmp/x", "/workspace/x"]) await raw("PUT", path, { id, body: "x" });
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.lastActivityAt !== null, { what: "activity" });
  await client.post(`/v1/machines/${id}/stop`);
  assert.equal((await raw("GET", "/workspace/x", { id })).status, 200);
  assert.equal((await raw("GET", "/tmp/x", { id })).status, 404);
  assert.equal((await client.get(`/v1/machines/${id}/usage`)).json.usage.execCount, 0);
});

test("files have their own scope", async () => {
  const made = await client.post("/v1/apikeys", { scopes: ["machine:exec", "machine:read"] });
  const refused = await client.withKey(made.json.key).get(`/v1/machines/${shared}/files/workspace/kept`);
  assert.deepEqual([refused.status, refused.text], [403, "missing scope: machine:files"]);
});

test("an upload under an idempotency key is done once, and its repetition must have the same bytes", async () => {
  const headers = { "idempotency-key": "upload-1" };
  const content = randomBytes(300_000);
  const first = await raw("POST", "?path=/workspace/once", { body: content, headers });
  assert.equal(first.status, 200);
  const other = await raw("POST", "?path=/workspace/once", { body: "newer" });
  assert.equal(other.status, 200);
  const again = await raw("POST", "?path=/workspace/once", { body: content, headers });
  assert.deepEqual([again.status, again.headers["idempotency-replayed"]], [200, "true"]);
  assert.equal(again.headers["x-content-sha256"], sha256(content));
  assert.equal((await raw("GET", "?path=/workspace/once")).body.toString(), "newer");
  const different = await raw("POST", "?path=/workspace/once", { body: randomBytes(300_000), headers });
  assert.deepEqual([different.status, different.headers["x-error-code"]], [422, "idempotency_mismatch"]);
});
