/**
 * Secrets of machines: their programs have them, no answer shows them, the database has them encrypted, and
 * nothing is left once a machine is deleted.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { Secrets } from "../src/secrets.ts";
import { Client } from "./support/client.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const { client } = server;
const { db } = server.context;
const source = { type: "image", reference: "local/busybox" };

/** Every row that may contain something of the machine, as text. */
async function everything(id: string): Promise<string> {
  const rows = await db.query<{ row: string }>(sql`
    SELECT m::text AS row FROM machines m WHERE id = ${id}
    UNION ALL SELECT s::text FROM machine_sessions s WHERE machine_id = ${id}
    UNION ALL SELECT e::text FROM tenant_events e WHERE subject_id = ${id}
    UNION ALL SELECT 'token' FROM connect_tokens WHERE machine_id = ${id}
    UNION ALL SELECT 'share' FROM machine_shares WHERE machine_id = ${id}`);
  return rows.map(({ row }) => row).join("\n");
}

test("the environment, the command, sessions, tokens and the share link of a machine are deleted with it", async () => {
  const secret = "correct-horse-battery";
  const body = { source, env: { PASSWORD: secret }, command: ["serve", `--token=${secret}`], ports: [{ port: 80 }] };
  const { id } = (await client.post("/v1/machines", body)).json as { id: string };
  const path = `/v1/machines/${id}`;
  assert.equal((await client.post(`${path}/sessions`, { env: { MORE: secret } })).status, 200);
  assert.equal((await client.post(`${path}/connect-token`)).status, 201);
  assert.equal((await client.post(`${path}/share`)).status, 200);
  assert.match(await everything(id), /correct-horse[^]*token[^]*share/);
  assert.equal((await client.delete(path)).status, 204);
  const left = await everything(id);
  assert.match(left, /machine deleted/);
  assert.doesNotMatch(left, /correct-horse|^token|^share/m);
  assert.equal((await client.get(`${path}/usage`)).status, 200, "its usage stays");
});

test("secret variables reach programs, are shown by name only, and are encrypted in the database", async () => {
  const secret = "open-sesame-of-the-test";
  const created = await client.post("/v1/machines", { source, env: { OPEN: "1" }, secretEnv: { TOKEN: secret } });
  assert.equal(created.status, 201, created.text);
  const { id } = created.json as { id: string };
  const path = `/v1/machines/${id}`;
  const ran = await client.post(`${path}/exec`, { command: 'echo "$OPEN $TOKEN"' });
  assert.equal(ran.json.stdout, `1 ${secret}\n`);
  const shown = [created, await client.get(path), await client.get("/v1/machines"), await client.get(`${path}/events`)];
  for (const { text } of shown) assert.ok(!text.includes(secret), text);
  assert.deepEqual([created.json.env, created.json.secretEnvNames], [{ OPEN: "1" }, ["TOKEN"]]);
  const inSession = await client.post(`${path}/sessions`, { id: "s" });
  assert.equal(inSession.status, 200);
  await client.post(`${path}/sessions/s/exec`, { command: "export MINE=1" });
  const rows = await everything(id);
  for (const form of [secret, Buffer.from(secret).toString("hex")]) assert.ok(!rows.includes(form));
  const keyFile = join(server.dataDirectory, "secrets.key");
  assert.equal((await stat(keyFile)).mode & 0o777, 0o600);
  assert.match(await readFile(keyFile, "utf8"), /^[0-9a-f]{64}\n$/);
  const sealed = () => db.queryOne(sql`SELECT FROM machines WHERE id = ${id} AND secret_env IS NOT NULL`);
  assert.notEqual(await sealed(), undefined);
  assert.equal((await client.delete(path)).status, 204);
  assert.equal(await sealed(), undefined);
});

test("a machine is stopped through a server that cannot decrypt its secrets, and is started with them through one that can", async () => {
  const { json } = await client.post("/v1/machines", { source, secretEnv: { TOKEN: "open-sesame" } });
  const path = `/v1/machines/${String(json.id)}`;
  assert.equal((await client.post(`${path}/start`)).status, 200);
  const other = await startTestServer({ databaseUrl: server.databaseUrl });
  const throughOther = new Client(other.url, server.adminKey.key);
  const stopped = await throughOther.post(`${path}/stop`);
  assert.equal(stopped.status, 200, stopped.text);
  assert.equal(stopped.json.state, "stopped");
  const refused = await throughOther.post(`${path}/start`);
  assert.equal(refused.status, 503);
  assert.match(refused.text, /encrypted with another key/);
  assert.equal((await throughOther.post(`${path}/stop`)).status, 200);
  const ran = await client.post(`${path}/exec`, { command: "echo $TOKEN" });
  assert.equal(ran.json.stdout, "open-sesame\n", ran.text);
  assert.equal((await client.delete(path)).status, 204);
});

test("a variable is secret or not, and all of them together are bounded", async () => {
  const both = await client.post("/v1/machines", { source, env: { A: "1" }, secretEnv: { A: "2" } });
  assert.equal(both.status, 400);
  assert.match(both.text, /^A is in env and in secretEnv/);
  const half = Object.fromEntries(Array.from({ length: 3 }, (_, n) => [`V${n}`, "x".repeat(100_000)]));
  const other = Object.fromEntries(Object.entries(half).map(([name, value]) => [`S${name}`, value]));
  const large = await client.post("/v1/machines", { source, env: half, secretEnv: other });
  assert.equal(large.status, 400);
  assert.match(large.text, /bytes all variables may have together/);
});

test("a value encrypted for one machine or with another key cannot be decrypted", () => {
  const bytes = (value: number) => (size: number) => Buffer.alloc(size, value);
  const made = new Secrets(join(server.dataDirectory, "one.key"), bytes(1));
  const sealed = made.seal("mach-1", { A: "secret" });
  assert.deepEqual(made.open("mach-1", sealed), { A: "secret" });
  assert.throws(() => made.open("mach-2", sealed));
  const other = new Secrets(join(server.dataDirectory, "two.key"), bytes(2));
  assert.throws(() => other.open("mach-1", sealed), /encrypted with another key/);
  other.seal("mach-1", {});
  assert.throws(() => other.open("mach-1", sealed), /encrypted with another key/);
});

test("a key that has encrypted something is there after the host lost its power", {
  skip:
    process.getuid?.() === 0 && existsSync("/dev/loop-control") ? false : "mounting a disk needs root and loop devices",
}, async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-key-"));
  const [disk, later, place] = [join(directory, "disk"), join(directory, "later"), join(directory, "place")];
  await mkdir(place);
  const run = (command: string, ...argv: readonly string[]) => execFileSync(command, argv);
  t.after(() => rm(directory, { recursive: true }));
  run("truncate", "--size=16M", disk);
  run("mkfs.ext4", "-q", disk);
  run("mount", "-o", "loop", disk, place);
  try {
    new Secrets(join(place, "secrets.key"), randomBytes).seal("mach-1", {});
    // What the disk has now, without what the kernel would write later.
    run("cp", "--reflink=never", disk, later);
  } finally {
    run("umount", place);
  }
  run("mount", "-o", "loop", later, place);
  const found = await readdir(place);
  run("umount", place);
  assert.ok(found.includes("secrets.key"), String(found));
});
