/**
 * `flotilla machine cp` where something breaks in the middle: the connection, a file of this machine, or what
 * the destination is.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Reply, reply, replyJson, startPeer } from "../../sdk/test/peer.ts";
import { until } from "../../test/support/until.ts";
import { startCli, temporaryHome } from "./run-cli.ts";

const ID = `mach-${"ab".repeat(16)}`;

/** `cp` in a new directory, against a peer that answers calls for files with a given reply. */
async function against(t: TestContext, files: Reply) {
  const machine = { id: ID, name: "hello" };
  const peer = await startPeer(t, (arrived, answer) =>
    (arrived.url === "/v1/machines" ? replyJson([machine]) : files)(arrived, answer),
  );
  const environment = { FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_test" };
  const directory = temporaryHome(t);
  const start = (...argv: readonly string[]) => startCli(t, ["machine", "cp", ...argv], { environment, directory });
  return { directory, start, cp: (...argv: readonly string[]) => start(...argv).ran };
}

/** As much of the content, and then the connection breaks. */
const cutOff =
  (content: string): Reply =>
  (_arrived, answer) => {
    answer.writeHead(200, { "content-length": "1000" });
    answer.write(content, () => answer.destroy());
  };

test("a copy whose connection breaks says so, and leaves no part of the file", async (t) => {
  const { cp, directory } = await against(t, cutOff("half"));
  for (const to of ["here", "-"]) {
    const { code, errors } = await cp("hello:/etc/hosts", to);
    const expected = "error: the connection broke while hello:/etc/hosts was read\n       try again\n";
    assert.deepEqual([code, errors], [1, expected], to);
  }
  const tree = await cp("-r", "hello:/etc", "tree");
  assert.equal(tree.code, 1);
  assert.match(tree.errors, /^error: the connection broke while hello:\/etc was read\n/);
  assert.deepEqual(readdirSync(directory), []);
});

test("a file whose name is as long as a name may be is copied, and one that is longer is refused", async (t) => {
  const { cp, directory } = await against(t, reply(200, "content"));
  const name = "n".repeat(255);
  assert.deepEqual((await cp(`hello:/${name}`, ".")).errors, "");
  assert.equal(readFileSync(join(directory, name), "utf8"), "content");
  assert.match((await cp("hello:/file", `${name}n`)).errors, /^error: .*: the name is too long\n$/);
  assert.deepEqual(readdirSync(directory), [name]);
});

test("a file whose name is not UTF-8 is refused by its name, on either side", async (t) => {
  const listed = replyJson([{ name: "lat\ufffd", kind: "file" }]);
  const missing = reply(404, "file not found: from/lat\ufffd", { "x-error-code": "not_found" });
  const { cp, directory } = await against(t, (arrived, answer) =>
    (arrived.url.includes("list=true") ? listed : missing)(arrived, answer),
  );
  const why = "its name is not UTF-8, and such a file cannot be copied";
  assert.equal((await cp("-r", "hello:/from", "tree")).errors, `error: hello:/from/lat\ufffd: ${why}\n`);
  mkdirSync(join(directory, "own"));
  writeFileSync(Buffer.concat([Buffer.from(join(directory, "own/lat")), Buffer.from([0xff])]), "x");
  assert.equal((await cp("-r", "own", "hello:/to")).errors, `error: ${join(directory, "own/lat\ufffd")}: ${why}\n`);
});

test("a named pipe gets the content, also through a link, and stays one", async (t) => {
  const { cp, directory } = await against(t, reply(200, "content"));
  const pipe = join(directory, "pipe");
  execFileSync("mkfifo", [pipe]);
  symlinkSync("pipe", join(directory, "link"));
  // Opened for reading and writing, because that does not wait for a writer.
  const reader = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  t.after(() => closeSync(reader));
  for (const to of ["pipe", "link"]) {
    const { code, errors } = await cp("hello:/file", to);
    assert.deepEqual([code, errors], [0, ""]);
    const read = Buffer.alloc(100);
    assert.equal(read.toString("utf8", 0, readSync(reader, read)), "content");
  }
  assert.ok(lstatSync(pipe).isFIFO() && lstatSync(join(directory, "link")).isSymbolicLink());
  assert.deepEqual(readdirSync(directory).sort(), ["link", "pipe"]);
  assert.equal(String((await cp("hello:/file", "/dev/stdout")).output), "content");
});

test("a copy to a socket is refused", async (t) => {
  const { cp, directory } = await against(t, reply(200, "content"));
  const listening = createServer().listen(join(directory, "socket"));
  t.after(() => listening.close());
  await once(listening, "listening");
  const { code, errors } = await cp("hello:/file", "socket");
  assert.equal(code, 1);
  assert.match(errors, /^error: \S+socket: it is a socket or a device that is not there\n$/);
  assert.ok(lstatSync(join(directory, "socket")).isSocket());
});

test("a destination that ends with a slash is a directory, and not made as a file", async (t) => {
  const { cp, directory } = await against(t, reply(200, "content".repeat(1_000_000)));
  const { code, errors } = await cp("hello:/file", "none/");
  assert.equal(code, 1);
  assert.match(errors, /^error: none\/ is not a directory\n/);
  assert.deepEqual(readdirSync(directory), []);
});

test("the first file that cannot be copied ends the copy of a directory, also files that are being copied", {
  timeout: 30_000,
}, async (t) => {
  const names = Array.from({ length: 50 }, (_, index) => `file${index}`);
  const asked: string[] = [];
  const { cp, directory } = await against(t, (arrived, answer) => {
    const path = arrived.url.replace(/.*\/files\//, "");
    if (path.endsWith("?list=true")) return replyJson(names.map((name) => ({ name, kind: "file" })))(arrived, answer);
    asked.push(path);
    // The others never end.
    if (path === "tree/file3") reply(403, "missing scope: machine:files")(arrived, answer);
    else answer.writeHead(200).write("some of it");
  });
  const { code, errors } = await cp("-r", "hello:/tree", "tree");
  assert.equal(code, 1);
  assert.match(errors, /^error: missing scope/);
  assert.deepEqual(
    asked.sort(),
    names.slice(0, 4).map((name) => `tree/${name}`),
  );
  assert.deepEqual(readdirSync(join(directory, "tree")), []);
});

test("a local file that cannot be read is named, and the server is not blamed", async (t) => {
  const { cp } = await against(t, reply(404, "file not found", { "x-error-code": "not_found" }));
  // Its first page is not mapped, so each read of it fails.
  const unreadable = await cp("/proc/self/mem", "hello:/file");
  assert.deepEqual([unreadable.code, unreadable.errors], [1, "error: /proc/self/mem: the disk reports an error\n"]);
});

test("a copy that is interrupted leaves no part of a file", { timeout: 30_000 }, async (t) => {
  const { start, directory } = await against(t, (arrived, answer) => {
    if (arrived.url.endsWith("?list=true")) replyJson([{ name: "file", kind: "file" }])(arrived, answer);
    // It never ends.
    else answer.writeHead(200).write("some of it");
  });
  mkdirSync(join(directory, "tree"));
  for (const [argv, into] of [
    [["hello:/file", "."], directory],
    [["-r", "hello:/tree", "."], join(directory, "tree")],
  ] as const) {
    const before = readdirSync(into).length;
    const { child, ran } = start(...argv);
    await until(() => readdirSync(into).length > before, { what: "the part of a file" });
    child.kill("SIGINT");
    const { code, errors } = await ran;
    assert.deepEqual([code, errors, readdirSync(into).length], [130, "", before]);
  }
});
