/**
 * The effect of the jail's launcher on a process, seen from inside and outside.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chownSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseSettings } from "@flotilla/contract/settings";
import { until } from "../../test/support/until.ts";
import { type Jail, jailArgv } from "../src/driver/qemu/jail.ts";

const { cacheDirectory } = parseSettings(["cacheDirectory"], process.env);
/** A static program. */
const program = join(cacheDirectory, "images", "busybox");
const skip =
  process.getuid?.() !== 0
    ? "a jail with a separate user requires root"
    : !existsSync(program) && `no ${program}; run set-up to get it`;

const directory = mkdtempSync(join(tmpdir(), "flotilla-jail-"));
after(() => rmSync(directory, { recursive: true, force: true }));
const UID = 700_001;
const launcher = join(directory, "jail");
const sources = ["jail.c", "filter.c"].map((name) => join(import.meta.dirname, "../native", name));
execFileSync("cc", ["-o", launcher, ...sources]);
const bootDirectory = join(directory, "boot");
mkdirSync(bootDirectory, { mode: 0o700 });
if (skip === false) chownSync(bootDirectory, UID, UID);

const jail: Jail = {
  launcher,
  runtime: { program, files: [], directories: [], links: [] },
  guestDirectory: import.meta.dirname,
  files: [],
  bootDirectory,
  memory: null,
  imagesDirectory: null,
  uid: UID,
  hasKvm: false,
  network: null,
  groups: [],
  limits: { fileBytes: 4096, filesOpen: 64, tasksMax: 100 },
  environment: { WORD: "b" },
  diesWithParent: false,
  moreSteps: [],
};

/** The output of a busybox command in a jail. */
function inside(command: readonly string[], given: Jail = jail): string {
  const [first = "", ...rest] = jailArgv(given, command);
  return execFileSync(first, rest, { encoding: "utf8" });
}

test("a jailed process sees what was made visible, and nothing else of the host", { skip }, () => {
  const seen = inside(["find", "/", "-xdev", "-not", "-path", "/guest/*", "-not", "-path", "/boot/*"])
    .trim()
    .split("\n");
  const onTheWay = program.split("/").map((_, at, parts) => parts.slice(0, at + 1).join("/") || "/");
  const shown = ["/boot", "/dev", "/dev/null", "/dev/urandom", "/dev/zero", "/guest", ...onTheWay];
  assert.deepEqual(seen.toSorted(), shown.toSorted());
});

/** A file of the boot's directory that the VMM may write to. */
function give(name: string): void {
  writeFileSync(join(bootDirectory, name), "");
  chownSync(join(bootDirectory, name), UID, UID);
}

test("a jailed process can write to files of its boot's directory, up to the limit of file sizes, and nowhere else", {
  skip,
}, () => {
  give("file");
  give("large");
  inside(["sh", "-c", "echo text >/boot/file"]);
  assert.equal(readFileSync(join(bootDirectory, "file"), "utf8"), "text\n");
  for (const path of ["/file", "/dev/file", "/guest/file", program]) {
    assert.match(inside(["sh", "-c", `echo text >${path} || echo refused`]), /refused/, path);
  }
  inside(["sh", "-c", "yes | head -c 8192 >/boot/large || :"]);
  assert.equal(statSync(join(bootDirectory, "large")).size, jail.limits.fileBytes);
});

/** Whether the kernel has Landlock: the version of its interface, by the system call that tells it. */
function hasLandlock(): boolean {
  const source = join(directory, "landlock.c");
  writeFileSync(source, "#include <unistd.h>\nint main(void) { return syscall(444, 0, 0, 1) < 1; }\n");
  execFileSync("cc", ["-o", join(directory, "landlock"), source]);
  return spawnSync(join(directory, "landlock")).status === 0;
}

test("a jailed process can make no file, so that what it can write is bounded, and can remove its own", {
  skip: skip === false && !hasLandlock() ? "the kernel has no Landlock" : skip,
}, () => {
  give("given");
  for (const make of ["echo text >/boot/new", "mkdir /boot/new", "ln -s x /boot/new", "mkfifo /boot/new"])
    assert.match(inside(["sh", "-c", `${make} || echo refused`]), /refused/, make);
  assert.match(inside(["sh", "-c", "ln /boot/given /boot/new || echo refused"]), /refused/);
  assert.ok(!existsSync(join(bootDirectory, "new")));
  inside(["rm", "/boot/given"]);
  assert.ok(!existsSync(join(bootDirectory, "given")));
});

test("a jailed process can make no file without a name, by any system call that opens one", { skip }, () => {
  const source = join(directory, "unnamed.c");
  const calls = [
    "open(2, path, flags, 0600)",
    "openat(257, -100, path, flags, 0600)",
    "openat2(437, -100, path, how, 24)",
  ]
    .map((call) => call.slice(call.indexOf("(") + 1, -1))
    .map((call) => `errno = 0; syscall(${call}); printf("%d ", errno);`);
  const lines = [
    "#define _GNU_SOURCE",
    ...["errno", "fcntl", "stdio", "unistd"].map((name) => `#include <${name}.h>`),
    "int main(void) {",
    'const char *path = "/boot"; int flags = O_TMPFILE | O_RDWR; unsigned long how[3] = {flags, 0600};',
    ...calls,
    'printf("%d\\n", open("/boot", O_DIRECTORY) > 0); }',
  ];
  writeFileSync(source, `${lines.join("\n")}\n`);
  const own = join(directory, "unnamed");
  execFileSync("cc", ["-static", "-o", own, source]);
  const runtime = { ...jail.runtime, program: own };
  assert.equal(inside([], { ...jail, runtime }), "95 95 38 1\n");
});

test("a jailed process has no privilege, no environment and no descriptor of its starter", { skip }, async () => {
  const moreSteps = [["batch"], ["small-pages"]];
  const [first = "", ...rest] = jailArgv({ ...jail, moreSteps }, ["sleep", "60"]);
  const from = join(directory, "secret");
  writeFileSync(from, "");
  // Like a descriptor that a shell leaves open for its children.
  const child = spawn("sh", ["-c", 'exec 7<"$0"; exec "$@"', from, first, ...rest], { stdio: "ignore" });
  const exit = once(child, "exit");
  try {
    const read = (name: string): string => readFileSync(`/proc/${child.pid}/${name}`, "utf8");
    await until(() => read("cmdline").includes(`${program}\0sleep`) && !read("cmdline").includes("--"), { what: "it" });
    const status = read("status");
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
      assert.match(status, new RegExp(`^${set}:\\s0{16}$`, "m"));
    }
    assert.match(status, new RegExp(`^Uid:(\\s${UID}){4}$`, "m"));
    assert.match(status, /^Groups:\s*$/m);
    assert.match(status, /^NoNewPrivs:\s1$/m);
    assert.match(status, /^THP_enabled:\s0$/m);
    assert.equal(read("environ"), "WORD=b\0");
    assert.equal(read("oom_score_adj"), "500\n");
    assert.match(read("limits"), /^Max core file size\s+1\s+1/m);
    assert.match(read("limits"), /^Max open files\s+64\s+64/m);
    assert.match(read("limits"), /^Max processes\s+100\s+100/m);
    assert.deepEqual(readdirSync(`/proc/${child.pid}/fd`), ["0", "1", "2"]);
  } finally {
    child.kill("SIGKILL");
    await exit;
  }
});

test("a jailed process that prints into a full pipe without a reader is not stopped", { skip }, async () => {
  const pipe = join(directory, "output");
  execFileSync("mkfifo", [pipe]);
  const fd = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  const many = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done";
  const [first = "", ...rest] = jailArgv(jail, ["sh", "-c", `(${many}) 2>/dev/null; echo over >/boot/over`]);
  give("over");
  const child = spawn(first, rest, { stdio: ["ignore", fd, fd] });
  closeSync(fd);
  await once(child, "exit");
  assert.equal(readFileSync(join(bootDirectory, "over"), "utf8"), "over\n");
});

/** Starts its arguments detached, as the agent does, prints their process id and keeps running. */
const STARTER =
  "const c = require('node:child_process').spawn(process.argv[1], process.argv.slice(2), { detached: true, stdio: 'ignore' });" +
  "console.log(c.pid); setInterval(() => {}, 1000);";

test("a process with `dies` ends when the process that started it is killed", { skip }, async () => {
  const argv = jailArgv({ ...jail, diesWithParent: true }, ["sleep", "60"]);
  const starter = spawn(process.execPath, ["-e", STARTER, ...argv], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(starter.stdout, "data")) as [Buffer];
  const pid = Number(line.toString());
  const isJailed = (): boolean => readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith(`${program}\0`);
  await until(isJailed, { what: "the jailed process" });
  starter.kill("SIGKILL");
  try {
    await until(() => !existsSync(`/proc/${pid}`), { what: "its end", deadlineMs: 5_000 });
  } finally {
    if (existsSync(`/proc/${pid}`)) process.kill(pid, "SIGKILL");
  }
});

test("a jail starts under a strict umask and under a limit of open files that its starter cannot raise", {
  skip,
}, () => {
  const script = 'umask 077; ulimit -n 32; exec setpriv --bounding-set=-sys_resource -- "$@"';
  const argv = jailArgv(jail, ["sh", "-c", "ulimit -Hn; umask"]);
  assert.equal(execFileSync("sh", ["-c", script, "sh", ...argv], { encoding: "utf8" }), "32\n0022\n");
});

test("where the kernel refuses a user namespace, a program runs without one", { skip }, () => {
  const refusing = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"';
  const argv = jailArgv({ ...jail, uid: null, moreSteps: [["users"], ["filter"]] }, ["echo", "runs"]);
  const [first = "", ...rest] = [...argv.slice(0, 4), "sh", "-c", refusing, "sh", ...argv.slice(4)];
  assert.equal(execFileSync(first, rest, { encoding: "utf8" }), "runs\n");
});

test("a step that fails ends the launch with the reason", { skip }, () => {
  const missing = { ...jail, guestDirectory: join(directory, "missing") };
  assert.throws(() => inside(["true"], missing), /cannot open .*missing: No such file or directory/);
});
