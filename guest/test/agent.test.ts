/**
 * The agent from a host's view: the real program with sanitizers, run on this host over a socket.
 *
 * What only PID 1 of a guest does (mounts, identity, power) is tested in VMs.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmodSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { GuestConfiguration } from "@flotilla/node/guest/guest";
import { outcome, processesWith, request, startAgent, until } from "./agent.ts";
import { makeDirectory, startSharedAgent } from "./shared-agent.ts";

const configuration: GuestConfiguration = {
  hostname: "box",
  machineId: "0123456789abcdef0123456789abcdef",
  now: 1_700_000_000_000,
  entropy: new Uint8Array(32),
  env: { FROM: "machine", KEPT: "yes" },
  workdir: "/usr",
  user: "",
  rootDevice: null,
  rootBytes: null,
  nameservers: [],
  address: null,
};

const directory = makeDirectory(join(tmpdir(), "flotilla-agent-test-"));
chmodSync(directory, 0o755);
const { agent, guest } = await startSharedAgent();

const run = (argv: readonly string[], more = {}) => outcome(guest.exec(request(argv, more)));
const shell = (script: string, more = {}) => run(["sh", "-c", script], more);

test("the hello reports an unconfigured guest, and commands run even then", async () => {
  assert.equal(guest.hello.isConfigured, false);
  assert.equal(guest.hello.timerKhz, null, "it is not a guest's first process");
  assert.deepEqual(await shell("pwd"), { stdout: "/\n", stderr: "", exitCode: 0 });
});

test("the configured environment and directory apply, and a request's override them", async () => {
  await guest.configure(configuration);
  assert.equal(guest.hello.isConfigured, true);
  const plain = await shell('echo "$FROM $KEPT $PWD $HOME $PATH"');
  const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  assert.equal(plain.stdout, `machine yes /usr /root ${path}\n`);
  const own = await shell('echo "$FROM $KEPT $PWD $HOME $PATH"', {
    cwd: "/tmp",
    env: { FROM: "request", HOME: "/h", PATH: "/bin:/usr/bin" },
  });
  assert.equal(own.stdout, "request yes /tmp /h /bin:/usr/bin\n");
});

test("a ping is answered while a command runs, and is counted with all that comes from the guest", async () => {
  const command = guest.exec(request(["sleep", "1000"]));
  await command.pid;
  const before = guest.received;
  await guest.ping();
  await Promise.all([guest.ping(), guest.ping()]);
  assert.equal(guest.received, before + 3);
  command.kill();
  await command.exit;
  assert.ok(guest.received > before + 3);
});

test("arguments arrive unchanged, and exit codes are returned", async () => {
  const odd = ["", " ", "a b", "größe", "new\nline", "'\"$x\\", "-n"];
  const listed = await run(["printf", "[%s]", ...odd]);
  assert.equal(listed.stdout, odd.map((argument) => `[${argument}]`).join(""));
  assert.equal((await shell("exit 7")).exitCode, 7);
  assert.equal((await shell("kill -9 $$")).exitCode, 137);
  assert.equal((await shell("kill -15 $$")).exitCode, 143);
});

test("a program that does not exist ends with 255 and the usual message of container engines", async () => {
  const missing = "not found in $PATH: No such file or directory\n";
  assert.deepEqual(await run(["nope"]), { stdout: "", stderr: `executable file 'nope' ${missing}`, exitCode: 255 });
  assert.deepEqual(await run(["/no/pe"]), { stdout: "", stderr: `executable file '/no/pe' ${missing}`, exitCode: 255 });
  const unstarted = guest.exec(request(["nope"]));
  await assert.rejects(unstarted.pid, /could not be run/);
});

test("without needsPid the guest sends only output and end", async () => {
  const unnamed = guest.exec(request(["sh", "-c", "echo out; exit 7"], { needsPid: false }));
  assert.deepEqual(await outcome(unnamed), { stdout: "out\n", stderr: "", exitCode: 7 });
  await assert.rejects(unnamed.pid);
  const missing = guest.exec(request(["nope"], { needsPid: false }));
  assert.equal((await outcome(missing)).exitCode, 255);
});

test("a directory or user that does not exist and a file without permission end with 255 too", async () => {
  const path = join(directory, "plain");
  writeFileSync(path, "text", { mode: 0o644 });
  const denied = await run([path]);
  assert.deepEqual(
    [denied.exitCode, denied.stderr],
    [255, `executable file '${path}' cannot be run: Permission denied\n`],
  );
  const nowhere = await run(["true"], { cwd: "/no/where" });
  assert.deepEqual([nowhere.exitCode, nowhere.stderr], [255, "chdir to '/no/where': No such file or directory\n"]);
  const unknown = await run(["true"], { user: "no-such-user" });
  assert.equal(unknown.exitCode, 255);
  assert.equal(unknown.stderr, "unable to find user no-such-user: no matching entries in passwd file\n");
  const group = await run(["true"], { user: "root:no-such-group" });
  assert.equal(group.stderr, "unable to find group no-such-group: no matching entries in group file\n");
});

test("a script without an interpreter line runs in sh, and a program is found behind files without permission", async () => {
  writeFileSync(join(directory, "script"), 'echo "script $1"\n', { mode: 0o755 });
  assert.equal((await run([join(directory, "script"), "arg"])).stdout, "script arg\n");
  writeFileSync(join(directory, "true"), "", { mode: 0o644 });
  assert.equal((await run(["true"], { env: { PATH: `${directory}:/bin:/usr/bin` } })).exitCode, 0);
});

test("a command runs as the requested user", async () => {
  const entry = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((line) => line.startsWith("daemon:"))
    ?.split(":");
  const [, , uid, gid, , home] = entry ?? [];
  const facts = async (user: string) => (await shell("id -u; id -g; echo $HOME", { user })).stdout;
  assert.equal(await facts("daemon"), `${uid}\n${gid}\n${home}\n`);
  assert.equal(await facts(`${uid}`), `${uid}\n${gid}\n${home}\n`);
  assert.equal(await facts("54321"), "54321\n0\n/\n");
  assert.equal(await facts("54321:12345"), "54321\n12345\n/\n");
  assert.equal(await facts("daemon:tty"), `${uid}\n5\n${home}\n`);
  assert.equal(await facts(""), "0\n0\n/root\n");
});

test("input reaches the command unchanged, and so does its end", async () => {
  const bytes = randomBytes(3_000_000);
  const exec = guest.exec(request(["sha256sum"], { hasStdin: true }));
  const ended = outcome(exec);
  exec.stdin.end(bytes);
  assert.equal((await ended).stdout, `${createHash("sha256").update(bytes).digest("hex")}  -\n`);
  const empty = guest.exec(request(["wc", "-c"], { hasStdin: true }));
  empty.stdin.end();
  assert.equal((await outcome(empty)).stdout, "0\n");
  assert.equal((await run(["wc", "-c"])).stdout, "0\n");
});

test("a command that does not read its input does not block the writer", async () => {
  const exec = guest.exec(request(["sh", "-c", "exec 0<&-; sleep 0.2; echo done"], { hasStdin: true }));
  const written = new Promise<void>((resolve) => exec.stdin.end(randomBytes(1_000_000), () => resolve()));
  assert.equal((await outcome(exec)).stdout, "done\n");
  await Promise.race([written, new Promise((resolve) => exec.stdin.once("close", resolve))]);
});

test("a megabyte of binary output arrives unchanged, on both streams at once", async () => {
  const path = join(directory, "binary");
  const bytes = randomBytes(1024 * 1024);
  writeFileSync(path, bytes);
  const exec = guest.exec(request(["sh", "-c", `cat ${path} >&2 & cat ${path}; wait`]));
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  exec.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  exec.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  assert.deepEqual(await exec.exit, { exitCode: 0 });
  assert(Buffer.concat(stdout).equals(bytes));
  assert(Buffer.concat(stderr).equals(bytes));
});

test("endless output without a reader blocks only its command, and memory stays bounded on both sides", async () => {
  const floods = Array.from({ length: 8 }, () => guest.exec(request(["sh", "-c", "yes & yes >&2"])));
  for (const flood of floods)
    await until(() => flood.stdout.readableLength > 200_000 && flood.stderr.readableLength > 200_000);
  const residentKb = await agent.residentKb();
  assert.equal((await shell("echo still here")).stdout, "still here\n");
  for (const flood of floods) assert(flood.stdout.readableLength <= 256 * 1024);
  assert((await agent.residentKb()) - residentKb < 2_000, "the agent grew");
  for (const flood of floods) flood.kill();
  for (const flood of floods) assert.equal((await flood.exit).exitCode, 137);
});

test("a slow reader gets everything", async () => {
  const exec = guest.exec(request(["seq", "1", "300000"]));
  let text = "";
  exec.stderr.resume();
  for await (const chunk of exec.stdout) {
    text += String(chunk);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await exec.exit).exitCode, 0);
  assert.equal(text.length, 1_988_895);
  assert(text.endsWith("299999\n300000\n"));
});

test("200 commands at once each get their own output", async () => {
  const all = Array.from({ length: 200 }, (_, index) =>
    shell(`echo ${index}; sleep 0.3; echo ${index} >&2; exit ${index}`),
  );
  const outcomes = await Promise.all(all);
  outcomes.forEach((result, index) => {
    assert.deepEqual(result, { stdout: `${index}\n`, stderr: `${index}\n`, exitCode: index });
  });
});

test("commands beyond the number of channels are refused with a reason, and the others continue", async () => {
  const sleepers = Array.from({ length: 256 }, () => guest.exec(request(["sleep", "100"])));
  assert.throws(() => guest.exec(request(["true"])), /runs its maximum of 256 commands/);
  for (const sleeper of sleepers) sleeper.kill();
  for (const sleeper of sleepers) assert.equal((await sleeper.exit).exitCode, 137);
  assert.equal((await run(["true"])).exitCode, 0);
});

test("kill ends every descendant, including one that left the session", async (context) => {
  if (!agent.hasCgroup) return context.skip("no cgroup 2 that this test may write to");
  const marker = `flotilla-test-${randomBytes(6).toString("hex")}`;
  const script = `setsid sh -c ': ${marker}; sleep 1000; :' & (sh -c ': ${marker}; sleep 1001; :' &); sh -c ': ${marker}; sleep 1002; :'`;
  const exec = guest.exec(request(["sh", "-c", script]));
  await until(() => processesWith(marker) >= 4);
  exec.kill();
  assert.equal((await exec.exit).exitCode, 137);
  await until(() => processesWith(marker) === 0);
});

test("a command runs although a program of the machine has frozen, taken or removed the control groups of earlier ones", async (context) => {
  if (!agent.hasCgroup) return context.skip("no cgroup 2 that this test may write to");
  const runs = async (): Promise<void> => assert.equal((await run(["echo", "runs"])).stdout, "runs\n");
  await runs();
  const groups = agent.cgroups();
  for (const group of groups) writeFileSync(join(group, "cgroup.freeze"), "1");
  await runs();
  for (const group of groups) writeFileSync(join(group, "cgroup.freeze"), "0");
  const sleeper = spawn("sleep", ["100"]);
  for (const group of groups) writeFileSync(join(group, "cgroup.procs"), String(sleeper.pid));
  await runs();
  sleeper.kill();
  await once(sleeper, "exit");
  for (const group of agent.cgroups()) rmdirSync(group);
  await runs();
  await runs();
});

test("a command ends when its process does, with all output until then, even if a child keeps its output open", async () => {
  const started = performance.now();
  const result = await shell("(sleep 20; echo late) & echo early");
  assert.deepEqual(result, { stdout: "early\n", stderr: "", exitCode: 0 });
  assert(performance.now() - started < 10_000);
  const noisy = await shell("(while :; do echo more; done) & head -c 50000 /dev/zero; exit 4");
  assert.equal(noisy.exitCode, 4);
  assert(noisy.stdout.replaceAll(/[^\0]/g, "").length === 50_000);
});

test("signals reach the command and its children", async () => {
  const exec = guest.exec(
    request(["sh", "-c", "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done"]),
  );
  exec.stdout.once("data", () => exec.signal(15));
  const result = await outcome(exec);
  assert.deepEqual([result.stdout, result.exitCode], ["ready\ngot\n", 5]);
});

test("a background command answers with its pid at once and continues to run", async () => {
  const exec = guest.exec(request(["sleep", "30"], { isBackground: true }));
  const pid = await exec.pid;
  assert.deepEqual(await exec.exit, { exitCode: 0 });
  await until(() => readFileSync(`/proc/${pid}/comm`, "utf8") === "sleep\n");
  process.kill(pid);
  const missing = guest.exec(request(["nope"], { isBackground: true }));
  assert.equal((await outcome(missing)).exitCode, 255);
});

test("a terminal has a size, echoes, is resized, and its last output is not lost", async () => {
  const terminal = { cols: 100, rows: 30 };
  const exec = guest.exec(
    request(["sh", "-c", "stty size; read x; stty size; echo got $x; sleep 100 & seq 1 5000"], { terminal }),
  );
  let text = "";
  exec.stdout.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  await until(() => text.includes("30 100"));
  exec.resize({ cols: 80, rows: 25 });
  exec.stdin.write("input\n");
  assert.deepEqual(await exec.exit, { exitCode: 0 });
  assert(text.startsWith("30 100\r\ninput\r\n25 80\r\ngot input\r\n1\r\n"), text.slice(0, 80));
  assert(text.endsWith("4999\r\n5000\r\n"), text.slice(-80));
  const missing = await run(["nope"], { terminal });
  assert.match(missing.stdout, /^executable file 'nope' not found/);
});

test("the end of input ends a program on a terminal", async () => {
  for (let round = 0; round < 20; round++) {
    const exec = guest.exec(request(["cat"], { terminal: { cols: 80, rows: 24 } }));
    exec.stdin.write("line\n");
    exec.stdin.end();
    const result = await outcome(exec);
    assert.deepEqual([result.stdout, result.exitCode], ["line\r\nline\r\n", 0]);
  }
});

test("a program that closes its terminal and continues does not get SIGHUP, and its exit code is kept", async () => {
  const terminal = { cols: 80, rows: 24 };
  const result = await shell("echo before; exec 0<&- 1>&- 2>&-; sleep 0.2; exit 6", { terminal });
  assert.deepEqual([result.stdout, result.exitCode], ["before\r\n", 6]);
});

test("large environments and arguments arrive, and too large ones are refused with a reason", async () => {
  const large = "x".repeat(120_000);
  const result = await run(["sh", "-c", 'echo "${#A} ${#B} ${#1}"', "sh", large], { env: { A: large, B: large } });
  assert.equal(result.stdout, "120000 120000 120000\n");
  const tooLarge = await run(["true", "y".repeat(200_000)]);
  assert.deepEqual(
    [tooLarge.exitCode, tooLarge.stderr],
    [255, "executable file 'true' cannot be run: Argument list too long\n"],
  );
  assert.throws(() => guest.exec(request(["true", "y".repeat(2_000_000)])), /over the limit/);
  assert.equal((await run(["true"])).exitCode, 0);
});

test("an invalid request is refused before it is sent, and a variable without a name is skipped", async () => {
  assert.throws(() => guest.exec(request([])), /without a program/);
  assert.throws(() => guest.exec(request(["a\0b"])), /zero byte/);
  assert.throws(() => guest.exec(request(["true"], { env: { A: "\0" } })), /zero byte/);
  const result = await shell('echo "$A"', { env: { "": "nothing", A: "something" } });
  assert.deepEqual(result, { stdout: "something\n", stderr: "", exitCode: 0 });
});

test("concurrent syncs are answered", async () => {
  await Promise.all(Array.from({ length: 10 }, () => guest.sync()));
});

test("commands that have ended leave no process, descriptor or memory", async () => {
  const descriptors = () => readdirSync(`/proc/${agent.pid}/fd`).length;
  await Promise.all(Array.from({ length: 50 }, () => run(["true"])));
  const before = descriptors();
  for (let round = 0; round < 5; round++) await Promise.all(Array.from({ length: 50 }, () => run(["true"])));
  assert.equal(descriptors(), before);
  const children = readFileSync(`/proc/${agent.pid}/task/${agent.pid}/children`, "utf8").trim().split(" ");
  for (const child of children.filter((pid) => pid !== "")) {
    assert(!readFileSync(`/proc/${child}/stat`, "utf8").includes(") Z "), "a zombie");
  }
});

/** Waiting for events without a timeout: neither running nor blocked in anything else. */
function isAsleep(pid: number): boolean {
  const [, , , , timeout] = readFileSync(`/proc/${pid}/syscall`, "utf8").split(" ");
  return timeout?.endsWith("ffffffff") === true;
}

test("an idle agent sleeps, also while outputs are unread and terminals are open", async () => {
  const idle = startAgent();
  const host = await idle.connect();
  const execs = [
    host.exec(request(["sh", "-c", "yes & yes >&2"])),
    host.exec(request(["sh", "-c", "exec 0<&- 1>&- 2>&-; sleep 100"], { terminal: { cols: 80, rows: 24 } })),
    host.exec(request(["sleep", "100"], { hasStdin: true })),
    host.exec(request(["sh", "-c", "exec 1>&- 2>&-; sleep 100"])),
  ];
  await Promise.all(execs.map((exec) => exec.pid));
  execs[2]?.stdin.write(randomBytes(200_000));
  for (let asleep = 0; asleep < 100; asleep++) {
    if (!isAsleep(idle.pid)) asleep = -1;
    await new Promise((resolve) => setImmediate(resolve));
    await until(() => isAsleep(idle.pid));
  }
  for (const exec of execs) exec.kill();
  await Promise.all(execs.map((exec) => exec.exit));
  assert.deepEqual([await idle.end(), idle.log()], [0, ""]);
});
