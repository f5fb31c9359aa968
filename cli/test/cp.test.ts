/**
 * `flotilla machine cp` against a real server and the files of a scripted guest.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startTestNode, TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { parseCopyEnd } from "../src/machine/cp.ts";
import { isPlainName } from "../src/machine/cp-tree.ts";
import { type RunOptions, runCli, temporaryHome } from "./run-cli.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const source = { type: "image", reference: "local/busybox" };
const { id } = (await server.client.post("/v1/machines", { source, name: "hello" })).json;

const cp = (t: TestContext, from: string, to: string, options: RunOptions = {}) =>
  runCli(t, ["machine", "cp", from, to], { environment, ...options });
const cpTree = (t: TestContext, from: string, to: string, options: RunOptions = {}) =>
  runCli(t, ["machine", "cp", "-r", from, to], { environment, ...options });

test("an operand is in a machine when it has a name and a colon", () => {
  const machine = (path: string) => ({ kind: "machine", machine: "hello", path });
  assert.deepEqual(parseCopyEnd("hello:/a/../b"), machine("/b"));
  assert.deepEqual(parseCopyEnd("hello:a b/c:d"), machine("/a b/c:d"));
  assert.deepEqual(parseCopyEnd("hello:/dir/"), machine("/dir/"));
  assert.deepEqual(parseCopyEnd("hello:/"), machine("/"));
  for (const path of ["file", "./a:b", "/a:b", "a/b:c", ".", "-"])
    assert.deepEqual(parseCopyEnd(path), { kind: "local", path });
  assert.throws(() => parseCopyEnd("hello:"), /names no file/);
});

test("a file survives the way there and back unchanged, and directories get its name", async (t) => {
  const directory = temporaryHome(t);
  const content = randomBytes(5_000_000);
  writeFileSync(join(directory, "data.bin"), content);
  mkdirSync(join(directory, "out"));
  assert.deepEqual((await cp(t, "data.bin", "hello:/workspace", { directory })).errors, "");
  assert.equal((await cp(t, "hello:/workspace/data.bin", "out", { directory })).code, 0);
  assert.equal(Buffer.compare(readFileSync(join(directory, "out/data.bin")), content), 0);
  assert.equal((await cp(t, "data.bin", "hello:new/", { directory })).code, 0);
  assert.equal((await cp(t, "hello:/new/data.bin", "other", { directory })).code, 0);
  assert.equal(Buffer.compare(readFileSync(join(directory, "other")), content), 0);
  assert.equal(statSync(join(directory, "other")).mode & 0o777, 0o644);
  assert.deepEqual(readdirSync(directory).sort(), ["data.bin", "other", "out"]);
});

test("standard input and output can be source and destination", async (t) => {
  assert.equal((await cp(t, "-", "hello:/workspace/piped", { input: "from a pipe" })).code, 0);
  const { code, output } = await cp(t, "hello:/workspace/piped", "-");
  assert.deepEqual([code, output.toString()], [0, "from a pipe"]);
});

test("a copy that cannot be made says why and leaves nothing", async (t) => {
  const directory = temporaryHome(t);
  const fails = async (from: string, to: string, text: RegExp, code = 1): Promise<void> => {
    const ran = await cp(t, from, to, { directory });
    assert.equal(ran.code, code);
    assert.match(ran.errors, text);
  };
  await fails("hello:/none", "here", /file not found: hello:\/none/);
  await fails("hello:/workspace/none", "here", /file not found: hello:\/workspace\/none/);
  await fails("none", "hello:/there", /none: no such file or directory/);
  await fails(".", "hello:/there", /is a directory[^]*cp -r/);
  await fails("a", "b", /one side must be a local file/, 2);
  await fails("hello:/a", "absent:/b", /one side must be a local file/, 2);
  await fails("absent:/a", "here", /no machine called "absent"/);
  await fails("hello:/", "here", /hello:\/ cannot be copied as a whole/, 2);
  const asTree = /^error: hello:\/workspace is a directory\n.*flotilla machine cp -r hello:\/workspace here\n$/;
  await fails("hello:/workspace", "here", asTree);
  assert.deepEqual(readdirSync(directory), []);
});

test("a program stays executable and a private file private in the machine, if the machine has chmod", async (t) => {
  const directory = temporaryHome(t);
  // The scripted guest has no chmod, and its error shows that chmod was called.
  for (const [name, mode] of Object.entries({ tool: 0o755, key: 0o600 })) {
    writeFileSync(join(directory, name), "#!/bin/sh\n");
    chmodSync(join(directory, name), mode);
    const { code, errors } = await cp(t, name, `hello:/workspace/${name}`, { directory });
    assert.equal(code, 1);
    assert.match(errors, new RegExp(`was copied, but its permissions .* to ${mode.toString(8)}: .*'chmod' not found`));
  }
  const all = await cpTree(t, ".", "hello:/modes", { directory });
  assert.match(all.errors, /files were copied, but not all could be given the permissions \d+: .*'chmod' not found/);
  assert.equal((await server.client.get(`/v1/machines/${id}/files/workspace/tool`)).text, "#!/bin/sh\n");
});

test("a directory survives the way there and back with its content, into an existing and into a new one", async (t) => {
  const directory = temporaryHome(t);
  const files = { "a.txt": "a", "deep/er/b": "b".repeat(100_000), "odd name": "", "deep/größe": "c" };
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(join(directory, "tree", name, ".."), { recursive: true });
    writeFileSync(join(directory, "tree", name), content);
  }
  symlinkSync("a.txt", join(directory, "tree/link"));
  const up = await cpTree(t, "tree", "hello:/workspace", { directory });
  assert.deepEqual([up.code, up.errors], [0, "flotilla: 1 link or special file was skipped\n"]);
  assert.equal((await cpTree(t, "tree", "hello:/other", { directory })).code, 0);
  mkdirSync(join(directory, "into"));
  const copies = { "hello:/workspace/tree": "new", "hello:/other": "into" };
  for (const [from, to] of Object.entries(copies)) {
    const down = await cpTree(t, from, to, { directory });
    assert.deepEqual([down.code, down.errors], [0, ""]);
    const place = join(directory, to === "into" ? "into/other" : "new");
    const found = readdirSync(place, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    assert.equal(found.length, Object.keys(files).length);
    for (const [name, content] of Object.entries(files)) assert.equal(readFileSync(join(place, name), "utf8"), content);
  }
});

test("a directory copied out of a machine changes nothing outside its destination", async (t) => {
  const directory = temporaryHome(t);
  assert.equal((await cp(t, "-", "hello:/evil/way/file", { input: "new" })).code, 0);
  mkdirSync(join(directory, "outside"));
  writeFileSync(join(directory, "outside/file"), "old");
  mkdirSync(join(directory, "to/evil/way"), { recursive: true });
  symlinkSync("../../../outside/file", join(directory, "to/evil/way/file"));
  assert.equal((await cpTree(t, "hello:/evil", "to", { directory })).code, 0);
  assert.equal(readFileSync(join(directory, "to/evil/way/file"), "utf8"), "new");
  rmSync(join(directory, "to/evil/way"), { recursive: true });
  symlinkSync("../../outside", join(directory, "to/evil/way"));
  const { code, errors } = await cpTree(t, "hello:/evil", "to", { directory });
  assert.equal(code, 1);
  assert.match(errors, /way exists and is not a directory/);
  assert.equal(readFileSync(join(directory, "outside/file"), "utf8"), "old");
});

test("a name that leads elsewhere is not plain", () => {
  for (const name of ["", ".", "..", "a/b", "../a", "/etc/passwd", "a\0b"])
    assert.equal(isPlainName(name), false, name);
  for (const name of ["a", "...", ".hidden", "a b", "-r", "a\\b"]) assert.equal(isPlainName(name), true, name);
});

test("a recursive copy of something that is not a directory says so", async (t) => {
  const directory = temporaryHome(t);
  writeFileSync(join(directory, "file"), "x");
  assert.equal((await cp(t, "file", "hello:/plain", { directory })).code, 0);
  assert.match((await cpTree(t, "file", "hello:/x", { directory })).errors, /file is not a directory/);
  assert.match((await cpTree(t, "none", "hello:/x", { directory })).errors, /none: no such file or directory/);
  assert.match(
    (await cpTree(t, "hello:/plain", "x", { directory })).errors,
    /^error: hello:\/plain is not a directory\n.*leave out -r/,
  );
  assert.match((await cpTree(t, "hello:/none", "x", { directory })).errors, /file not found: hello:\/none/);
  assert.deepEqual(readdirSync(directory), ["file"]);
});
