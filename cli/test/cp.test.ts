/**
 * `flotilla machine cp` against a real server and the files of a scripted guest.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startTestNode, TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { parsePlace } from "../src/machine/cp.ts";
import { type RunOptions, runCli, temporaryHome } from "./run-cli.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const source = { type: "image", reference: "local/busybox" };
const { id } = (await server.client.post("/v1/machines", { source, name: "hello" })).json;

const cp = (t: TestContext, from: string, to: string, options: RunOptions = {}) =>
  runCli(t, ["machine", "cp", from, to], { environment, ...options });

test("a place is in a machine when a name and a colon say so", () => {
  const machine = (path: string) => ({ kind: "machine", machine: "hello", path });
  assert.deepEqual(parsePlace("hello:/a/../b"), machine("/b"));
  assert.deepEqual(parsePlace("hello:a b/c:d"), machine("/a b/c:d"));
  assert.deepEqual(parsePlace("hello:/dir/"), machine("/dir/"));
  assert.deepEqual(parsePlace("hello:/"), machine("/"));
  for (const path of ["file", "./a:b", "/a:b", "a/b:c", ".", "-"])
    assert.deepEqual(parsePlace(path), { kind: "local", path });
  assert.throws(() => parsePlace("hello:"), /names no file/);
});

test("a file goes there and back unchanged, and directories get its name", async (t) => {
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

test("standard input and output are files too", async (t) => {
  assert.equal((await cp(t, "-", "hello:/workspace/piped", { input: "from a pipe" })).code, 0);
  const { code, output } = await cp(t, "hello:/workspace/piped", "-");
  assert.deepEqual([code, output.toString()], [0, "from a pipe"]);
});

test("what cannot be copied says why and leaves nothing", async (t) => {
  const directory = temporaryHome(t);
  const fails = async (from: string, to: string, text: RegExp, code = 1): Promise<void> => {
    const ran = await cp(t, from, to, { directory });
    assert.equal(ran.code, code);
    assert.match(ran.errors, text);
  };
  await fails("hello:/none", "here", /file not found: none/);
  await fails("none", "hello:/there", /none: no such file or directory/);
  await fails(".", "hello:/there", /is a directory[^]*tar c/);
  await fails("a", "b", /one side is a file here/, 2);
  await fails("hello:/a", "nobody:/b", /one side is a file here/, 2);
  await fails("nobody:/a", "here", /no machine called "nobody"/);
  await fails("hello:/workspace", "here", /is a directory/);
  assert.deepEqual(readdirSync(directory), []);
});

test("an executable is made one in the machine, as far as the machine can", async (t) => {
  const directory = temporaryHome(t);
  writeFileSync(join(directory, "tool"), "#!/bin/sh\n");
  chmodSync(join(directory, "tool"), 0o755);
  // The scripted guest has no chmod, which shows that it was asked.
  const { code, errors } = await cp(t, "tool", "hello:/workspace/tool", { directory });
  assert.equal(code, 1);
  assert.match(errors, /was copied, but could not be made executable: .*'chmod' not found/);
  assert.equal((await server.client.get(`/v1/machines/${id}/files/workspace/tool`)).text, "#!/bin/sh\n");
});
