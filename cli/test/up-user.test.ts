/**
 * Which user the server runs as when root runs `flotilla up`, and what it can access then.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { childOf, makeDirectory, ROOT, startUp } from "./run-up.ts";

const asRoot = { skip: process.getuid?.() === 0 ? false : "only root can run a program as another user" };

const status = (pid: number, name: string): string =>
  new RegExp(`^${name}:\\s+(.*)$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "";

test(
  "root's server runs as another user without capabilities, also below a directory that is closed to others",
  asRoot,
  async (t) => {
    const closed = makeDirectory(t);
    const dataDirectory = join(closed.path, "home", "flotilla");
    mkdirSync(join(closed.path, "home"), { mode: 0o700 });
    const up = await startUp(t, { ...closed, path: dataDirectory, isEmpty: true });
    const server = childOf(up.pid, "server/src/main.ts") ?? 0;
    assert.notEqual(statSync(`/proc/${server}`).uid, 0);
    assert.deepEqual([status(server, "CapEff"), status(server, "CapBnd")], ["0000000000000000", "0000000000000000"]);
    assert.equal(status(server, "NoNewPrivs"), "1");
    // Some containers do not permit lowering it.
    const canLower = spawnSync("sh", ["-c", "echo -500 >/proc/self/oom_score_adj"], { stdio: "ignore" }).status === 0;
    assert.equal(readFileSync(`/proc/${server}/oom_score_adj`, "utf8").trim(), canLower ? "-500" : "0");
    const { uid, mode } = statSync(join(dataDirectory, "admin.key"));
    assert.deepEqual([uid, mode & 0o777], [statSync(`/proc/${server}`).uid, 0o600]);
    // It cannot replace any file that the node runs with as root.
    assert.equal(statSync(dataDirectory).uid, 0);
    assert.equal(statSync(dataDirectory).mode & 0o1000, 0o1000);
    const node = statSync(join(dataDirectory, "node"));
    assert.deepEqual([node.uid, node.gid, node.mode & 0o777], [0, statSync(`/proc/${server}`).gid, 0o710]);
    assert.equal((await up.cli("machine", "create", "local/busybox", "--name", "a", "--start")).code, 0, up.said());
    assert.equal((await up.cli("machine", "exec", "a", "hostname")).code, 0);
  },
);

test("a data directory whose server ran as root is handed over", asRoot, async (t) => {
  const directory = makeDirectory(t);
  const first = await startUp(t, directory);
  assert.equal((await first.cli("machine", "create", "local/busybox", "--name", "kept")).code, 0);
  first.signal("SIGTERM");
  await first.ran;
  for (const name of ["admin.key", "postgres", "postgres/password", "postgres/log", "postgres/lib"])
    chownSync(join(directory.path, name), 0, 0);
  chownSync(directory.path, 0, 0);
  chmodSync(directory.path, 0o700);
  const again = await startUp(t, directory);
  assert.notEqual(statSync(`/proc/${childOf(again.pid, "server/src/main.ts") ?? 0}`).uid, 0);
  assert.equal((await again.cli("machine", "get", "kept")).code, 0, again.said());
});

const inNamespace = ["--user", "--map-root-user"];

test("up and a doctor name the user ids that a namespace lacks", {
  skip: spawnSync("unshare", [...inNamespace, "true"]).status === 0 ? false : "this host permits no user namespaces",
}, (t) => {
  const environment = { FLOTILLA_DRIVER: "fake", FLOTILLA_LISTEN: "127.0.0.1:0" };
  const run = (verb: string) => {
    const env = { ...process.env, ...environment, FLOTILLA_DATA_DIR: join(makeDirectory(t).path, "data") };
    return spawnSync("unshare", [...inNamespace, join(ROOT, "flotilla"), verb], { env, encoding: "utf8" });
  };
  const { status: code, stderr } = run("up");
  assert.equal(code, 1, stderr);
  assert.match(
    stderr,
    /^flotilla server: PostgreSQL cannot run as root, and user \d+ cannot have its files .* or set DATABASE_URL$/m,
  );
  assert.doesNotMatch(stderr, /^ +at /m, "no stack");
  assert.match(run("doctor").stdout, /^bad {3}user +root of a user namespace without the ids \d+ to \d+$/m);
});
