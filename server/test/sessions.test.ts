/**
 * Sessions: over HTTP with a scripted guest, and the lines they send in the real shells of images.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { applyChange, changeIn, readingArgv, type SessionState, shellArgv } from "../src/machines/sessions/script.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { until } from "../../test/support/until.ts";

const { server, client, machine: create } = await startMachineServer();

const machine = (fields: object = {}) => create({ env: { FROM: "machine" }, ...fields });

const shared = await machine();

async function session(body: object = {}, id = shared) {
  const answer = await client.post(`/v1/machines/${id}/sessions`, body);
  assert.equal(answer.status, 200, answer.text);
  const path = `/v1/machines/${id}/sessions/${answer.json.id}`;
  const exec = async (command: unknown, more: object = {}) =>
    (await client.post(`${path}/exec`, { command, ...more })).json;
  const info = async () => {
    const all = (await client.get(`/v1/machines/${id}/sessions`)).json as { id: string }[];
    return all.find((one) => one.id === answer.json.id) as ReturnType<JSON["parse"]>;
  };
  return { id: answer.json.id as string, path, exec, info };
}

test("cd, export and unset in a command carry over to the next", async () => {
  const { exec, info } = await session();
  assert.equal((await exec("cd /usr; cd lib; export A='x y' B=1; exit 7")).exitCode, 7);
  assert.equal((await exec('pwd; echo "$A|$B|$FROM"; unset A FROM')).stdout, "/usr/lib\nx y|1|machine\n");
  assert.equal((await exec('echo "[$A][$B][$FROM]"; export FROM=session')).stdout, "[][1][]\n");
  assert.equal((await exec("echo $FROM; export FROM=machine")).stdout, "session\n");
  assert.equal((await exec("echo $FROM")).stdout, "machine\n");
  const { cwd, env, status, machineId, lastExecAt } = await info();
  assert.deepEqual([cwd, env, status, machineId], ["/usr/lib", { B: "1", FROM: "machine" }, "active", shared]);
  assert.ok(Date.parse(lastExecAt) <= Date.now());
});

test("a session begins with its own directory and environment, not another's", async () => {
  const one = await session({ cwd: "/srv", env: { A: "1" } });
  const other = await session();
  await other.exec("cd /opt; export A=2");
  assert.equal((await one.exec("pwd; echo $A")).stdout, "/srv\n1\n");
  assert.equal((await other.exec("pwd; echo $A")).stdout, "/opt\n2\n");
  const outside = await client.post(`/v1/machines/${shared}/exec`, { command: 'echo "[$A]"' });
  assert.equal(outside.json.stdout, "[]\n");
});

test("a program with arguments runs in the session's state, and does not change it", async () => {
  const { exec, info } = await session({ cwd: "/srv", env: { A: "1" } });
  await exec("unset FROM");
  assert.equal((await exec(["pwd"])).stdout, "/srv\n");
  assert.equal((await exec(["printenv", "A"])).stdout, "1\n");
  assert.equal((await exec(["printenv", "FROM"])).exitCode, 1);
  assert.equal((await exec(["sh", "-c", "cd /; export A=2"])).exitCode, 0);
  assert.deepEqual([(await info()).cwd, (await info()).env], ["/srv", { A: "1" }]);
});

test("options of one call apply to it alone, and its command's changes to them are not kept", async () => {
  const { exec, info } = await session({ cwd: "/srv" });
  assert.equal((await exec("pwd; echo $ONCE", { cwd: "/opt", env: { ONCE: "x" } })).stdout, "/opt\nx\n");
  assert.deepEqual([(await info()).cwd, (await info()).env], ["/srv", {}]);
  await exec("cd /var; export MORE=$ONCE.", { cwd: "/opt", env: { ONCE: "x" } });
  assert.deepEqual([(await info()).cwd, (await info()).env], ["/var", { MORE: "x." }]);
});

test("a variable that one call sets is set, although the session has unset it", async () => {
  const { exec, info } = await session();
  await exec("unset FROM");
  const env = { FROM: "call" };
  assert.equal((await exec("echo $FROM", { env })).stdout, "call\n");
  assert.equal((await exec(["printenv", "FROM"], { env })).stdout, "call\n");
  assert.equal((await exec('echo "[$FROM]"')).stdout, "[]\n");
  assert.deepEqual((await info()).env, {});
});

test("a session survives a stop and a start; a directory that did not is reported and left", async () => {
  const id = await machine();
  const { exec, info } = await session({ id: "work" }, id);
  await exec("cd /workspace; export KEPT=yes");
  await client.post(`/v1/machines/${id}/stop`);
  assert.equal((await exec("pwd; echo $KEPT")).stdout, "/workspace\nyes\n");
  const gone = await session({ cwd: "/gone/away" }, id);
  const answer = await gone.exec("pwd");
  assert.deepEqual([answer.stdout, answer.exitCode], ["/\n", 0]);
  assert.match(answer.stderr, /the directory \/gone\/away does not exist any more/);
  assert.equal((await info()).id, "work");
});

test("after a streamed, background or timed-out command the next one finds the resulting state", async () => {
  const { path, exec, info } = await session();
  const streamed = await client.post(`${path}/exec`, { command: "cd /opt; echo on", stream: true });
  assert.equal(streamed.headers.get("content-type"), "text/event-stream");
  assert.equal(streamed.text, 'event: stdout\ndata: on\ndata: \n\nevent: exit\ndata: {"exitCode":0}\n\n');
  assert.equal((await exec("pwd")).stdout, "/opt\n");
  assert.match((await exec("cd /var; sleep 9", { background: true })).stdout, /^pid=\d+\n$/);
  assert.equal((await exec("cd /var; sleep 60", { timeoutSeconds: 1 })).exitCode, 124);
  assert.equal((await info()).cwd, "/opt");
});

test("concurrent commands of a session keep all their changes, and count once each", async () => {
  const id = await machine();
  const { exec, info } = await session({}, id);
  await Promise.all(Array.from({ length: 20 }, (_, n) => exec(`export V${n}=${n}`)));
  assert.equal(Object.keys((await info()).env).length, 20);
  const usage = await until(async () => {
    const { usage: now } = (await client.get(`/v1/machines/${id}/usage`)).json;
    return now.execCount >= 20 && now;
  });
  assert.equal(usage.execCount, 20);
});

test("ids are chosen or generated, are separate per machine, and a deleted session is gone", async () => {
  const other = await machine();
  const first = await session({ id: "build-1", cwd: null, env: null });
  assert.equal(first.id, "build-1");
  assert.match((await session()).id, /^sess-[0-9a-f]{32}$/);
  assert.equal((await client.post(`/v1/machines/${shared}/sessions`, { id: "build-1" })).status, 409);
  await session({ id: "build-1" }, other);
  assert.equal((await client.call("POST", `/v1/machines/${other}/sessions`)).status, 200);
  assert.equal((await client.delete(first.path)).status, 204);
  assert.equal((await client.delete(first.path)).status, 404);
  assert.equal((await client.post(`${first.path}/exec`, { command: "true" })).status, 404);
  assert.equal((await client.get(`/v1/machines/${other}/sessions`)).json.length, 2);
  await client.delete(`/v1/machines/${other}`);
  assert.equal((await client.get(`/v1/machines/${other}/sessions`)).status, 404);
  assert.equal((await client.post(`/v1/machines/${other}/sessions`, {})).status, 404);
});

test("state too large for any command is not kept, and the session continues", async () => {
  const { exec } = await session();
  const half = "x".repeat(100 * 1024);
  assert.equal((await exec(`export A=${half} B=1`)).stderr, "");
  assert.match((await exec('export A="$A$A" B=2')).stderr, /too large, and was not kept/);
  const many = Array.from({ length: 20 }, (_, n) => `export V${n}=$A`).join("; ");
  assert.match((await exec(many)).stderr, /too large, and was not kept/);
  const short = Array.from({ length: 8_001 }, (_, n) => `W${n}=x`).join(" ");
  assert.match((await exec(`export ${short}`)).stderr, /too large, and was not kept/);
  assert.equal((await exec("echo $B$A$V0$W0")).stdout, `1${half}\n`);
});

test("invalid requests are refused with the reason", async () => {
  const { path } = await session();
  const broken = await machine({ env: { FAKE_BOOT_FAIL: "1" } });
  const inBroken = (await session({}, broken)).path;
  const sessions = `/v1/machines/${shared}/sessions`;
  const refusals: readonly [string, object, number, string][] = [
    [sessions, { cwd: "relative" }, 400, "invalid_request"],
    [sessions, { env: { "A=B": "" } }, 400, "invalid_request"],
    [sessions, { id: "a/b" }, 422, "invalid_body"],
    [sessions, { id: ".." }, 422, "invalid_body"],
    [sessions, { id: "-rf" }, 422, "invalid_body"],
    [`${path}/exec`, { command: [""] }, 400, "invalid_request"],
    [`${path}/exec`, { command: "true", env: { "": "" } }, 400, "invalid_request"],
    [`${path}/exec`, {}, 422, "invalid_body"],
    [`${sessions}/none/exec`, { command: "true" }, 404, "not_found"],
    [`${inBroken}/exec`, { command: "true" }, 503, "start_failed"],
    [`${inBroken}/exec`, { command: "true" }, 409, "conflict"],
  ];
  for (const [at, body, status, code] of refusals) {
    const answer = await client.post(at, body);
    assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [status, code], answer.text);
  }
});

test("a machine has a bounded number of sessions, also when made concurrently", async () => {
  const id = await machine();
  const make = (body: object = {}) => client.post(`/v1/machines/${id}/sessions`, body);
  await make({ id: "mine" });
  assert.equal((await make({ id: "mine" })).status, 409);
  await server.context.db.execute(sql`
    INSERT INTO machine_sessions (machine_id, id, env, created_at)
    SELECT ${id}, 's' || n, '{}', now() FROM generate_series(1, 245) n`);
  const made = await Promise.all(Array.from({ length: 20 }, () => make()));
  assert.equal(made.filter(({ status }) => status === 200).length, 10);
  const refused = made.find(({ status }) => status !== 200);
  assert.equal(refused?.status, 422);
  assert.match(refused.text, /has 256 sessions; delete one that is not used/);
});

test("the sessions of a machine hold a bounded number of bytes together, and a change that shrinks one is kept", async () => {
  const id = await machine();
  const large = { env: Object.fromEntries(Array.from({ length: 5 }, (_, at) => [`V${at}`, "x".repeat(100_000)])) };
  const first = await session(large, id);
  for (let count = 1; count < 8; count += 1) await session(large, id);
  const refused = await client.post(`/v1/machines/${id}/sessions`, large);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "quota_exceeded"]);
  assert.match(refused.text, /would hold more than 4194304 bytes .* together; delete sessions that are not used/);
  const small = await session({ env: { A: "x".repeat(100_000) } }, id);
  const grown = await small.exec('export B="$A"');
  assert.equal(grown.exitCode, 0);
  assert.match(grown.stderr, /session: what this command changed is not kept, because the sessions of machine/);
  assert.deepEqual(Object.keys((await small.info()).env), ["A"]);
  assert.equal((await first.exec("unset V0 V1 V2 V3")).stderr, "");
  assert.deepEqual(Object.keys((await first.info()).env), ["V4"]);
  assert.equal((await small.exec('export B="$A"')).stderr, "");
  assert.equal((await client.post(`/v1/machines/${id}/sessions`, large)).status, 422);
  const held = await server.context.db.queryOne<{ bytes: number }>(
    sql`SELECT sum(bytes)::integer AS bytes FROM machine_sessions WHERE machine_id = ${id}`,
  );
  assert.ok((held?.bytes ?? Infinity) <= 4 * 1024 * 1024);
});

const SHELLS: readonly (readonly string[])[] = [["dash"], ["bash", "--norc", "--posix"], ["busybox", "sh"]];

for (const [shell = "", ...options] of SHELLS) {
  const isThere = spawnSync(shell, [...options, "-c", "true"]).status === 0;
  test(`the lines of a session mean the same in ${shell}`, { skip: isThere ? false : `no ${shell} here` }, (t) => {
    const directory = mkdtempSync(join(tmpdir(), "flotilla-session-"));
    t.after(() => rmSync(directory, { recursive: true, force: true }));
    const statePath = join(directory, "state");
    let state: SessionState = { cwd: "/", env: {}, unsetNames: [], hasProfile: true };
    const spawn = (argv: readonly string[]) => {
      const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", FROM: "machine", ...state.env };
      return spawnSync(shell, [...options, ...argv.slice(1)], { env, cwd: "/", timeout: 10_000 });
    };
    const run = (line: string) => {
      const ran = spawn(shellArgv(line, state, { statePath, hasOwnCwd: false }));
      const change = changeIn(spawn(readingArgv(statePath)).stdout, state, false);
      if (change !== null) state = applyChange(state, change) ?? state;
      return { code: ran.status, out: ran.stdout.toString(), isKept: change !== null };
    };
    assert.equal(run("cd /usr; export A='x\ny=\"z\"'; B=no; exit 7").code, 7);
    assert.equal(run('pwd; echo "$A|$B|$FROM"; unset FROM A; cd bin').out, '/usr\nx\ny="z"||machine\n');
    assert.equal(run('pwd; echo "[$FROM][$A]"; export FROM=machine').out, "/usr/bin\n[][]\n");
    assert.deepEqual(run("echo $FROM; set -eu; false; echo no"), { code: 1, out: "machine\n", isKept: true });
    assert.equal(run("(cd /; export SUB=1); export PATH=$PATH:/opt; # comment").code, 0);
    assert.equal(run('pwd; echo "$PATH[${SUB-}]"').out, "/usr/bin\n/usr/sbin:/usr/bin:/sbin:/bin:/opt[]\n");
    // The result of these is unknown, so the state does not change.
    for (const line of ["if", "export C=1; exec true", "export C=1; kill -9 $$"]) assert.equal(run(line).isKept, false);
    const here = JSON.stringify(directory);
    assert.equal(run(`mkdir ${here}/d; cd ${here}/d; rmdir ${here}/d; exit 0`).code, 0);
    assert.equal(run("pwd").out, "/\n");
    const kept = { FROM: "machine", PATH: "/usr/sbin:/usr/bin:/sbin:/bin:/opt" };
    assert.deepEqual(state, { cwd: "/", env: kept, unsetNames: ["A"], hasProfile: true });
    // A state file that was cut off for lack of space changes nothing, wherever it was cut.
    spawn(shellArgv("cd /usr; unset FROM; echo() { :; }", state, { statePath, hasOwnCwd: false }));
    const whole = spawn(readingArgv(statePath)).stdout;
    assert.equal(changeIn(whole, state, false)?.cwd, "/usr");
    for (let end = 0; end < whole.length; end += 1) assert.equal(changeIn(whole.subarray(0, end), state, false), null);
    for (const path of ["/dev/full", join(directory, "none", "state")]) {
      const full = spawn(shellArgv("echo fine; unset FROM; exit 5", state, { statePath: path, hasOwnCwd: false }));
      assert.deepEqual([full.stdout.toString(), full.status], ["fine\n", 5]);
      assert.match(full.stderr.toString(), /^session: what this command changed is not kept, .*\n$/);
    }
  });
}
