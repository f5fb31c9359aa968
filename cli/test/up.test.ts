/**
 * `flotilla up` as a whole, with a real server, database and node, and machines of the fake driver: its
 * printed lines work, crashed programs are restarted, and a stop leaves no program.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { DrawnTests } from "../../test/support/drawn.ts";
import { until } from "../../test/support/until.ts";
import { runCli, temporaryHome } from "./run-cli.ts";
import { childOf, isGone, makeDirectory, ROOT, START_MS, startUp } from "./run-up.ts";

/** How many of four a run plays, besides that of the first start. */
const TESTS_PER_RUN = 2;

test("the first start says where the admin key is and prints lines that work; a later start keeps the machines", async (t) => {
  const directory = { ...makeDirectory(t), isEmpty: true };
  const dataDirectory = directory.path;
  const up = await startUp(t, directory);
  const keyFile = join(dataDirectory, "admin.key");
  assert.doesNotMatch(up.greeting + up.said(), /smk_/, "output that is not a terminal may be stored");
  assert.equal(statSync(keyFile).mode & 0o777, 0o600);

  const lines = up.greeting.split("\n").filter((line) => /^ {2}(export|\.\/flotilla) /.test(line));
  assert.equal(lines.length, 5, up.greeting);
  const script = lines.slice(0, 4).join("\n");
  const shell = spawn("sh", ["-euc", script], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"] ?? "", HOME: dataDirectory },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [chunks, [code]] = await Promise.all([shell.stdout.toArray(), once(shell, "close")]);
  assert.deepEqual([code, Buffer.concat(chunks as Buffer[]).toString()], [0, "hello\nLinux hello fake\n"]);

  const node = childOf(up.pid, "node/src/main.ts") ?? 0;
  const server = childOf(up.pid, "server/src/main.ts") ?? 0;
  assert.ok(node > 0 && server > 0);
  up.signal("SIGTERM");
  const { code: exitCode, errors } = await up.ran;
  assert.equal(exitCode, 0, errors);
  assert.match(errors, /running machines keep running/);
  assert.ok(isGone(node) && isGone(server), "nothing is left behind");

  const again = await startUp(t, directory);
  assert.doesNotMatch(again.greeting, /smk_/);
  const machine = await again.cli("machine", "get", "hello");
  assert.match(String(machine.output), /state +started/);
  assert.equal((await again.cli("machine", "rm", "hello")).code, 0);
});

const some = new DrawnTests();

some.test("the admin key is not written to a file, also when messages go to a terminal", async (t) => {
  const directory = makeDirectory(t);
  const file = join(temporaryHome(t), "output");
  // script(1) makes the terminal, and types what it reads.
  const child = spawn("script", ["-qec", `./flotilla up >${file}`, "/dev/null"], {
    cwd: ROOT,
    env: {
      ...process.env,
      FLOTILLA_DRIVER: "fake",
      FLOTILLA_LISTEN: "127.0.0.1:0",
      FLOTILLA_DATA_DIR: directory.path,
    },
    stdio: ["pipe", "ignore", "inherit"],
  });
  const closed = once(child, "close");
  directory.stops.push(() => {
    child.stdin.write("\x03");
    return closed;
  });
  const written = (): string => readFileSync(file, "utf8");
  await until(() => written().includes("Ctrl-C stops"), { what: "the greeting", deadlineMs: START_MS });
  assert.match(written(), /admin key +in /);
  assert.doesNotMatch(written(), /smk_/);
});

some.test("a killed server and a killed node are restarted at the same address, and work continues", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  assert.equal((await up.cli("machine", "create", "local/busybox", "--name", "a", "--start")).code, 0);
  for (const [name, program] of [
    ["server", "server/src/main.ts"],
    ["node", "node/src/main.ts"],
  ] as const) {
    process.kill(childOf(up.pid, program) ?? 0, "SIGKILL");
    await until(() => up.said().includes(`the ${name} runs again`), {
      what: `the ${name}'s return`,
      deadlineMs: START_MS,
    });
    assert.match(up.said(), new RegExp(`the ${name} was ended by SIGKILL; it is restarted in 0.5 s`));
    await until(async () => (await up.cli("machine", "exec", "a", "hostname")).code === 0, {
      what: `an exec after the ${name}'s return`,
      deadlineMs: START_MS,
    });
  }
});

some.test(
  "two run on one host, and a backup takes neither for the other; a third at a used address or in a used directory names the conflict",
  async (t) => {
    const [one, two] = await Promise.all([
      startUp(t, makeDirectory(t)),
      startUp(t, { ...makeDirectory(t), isEmpty: true }),
    ]);
    assert.notEqual(one.url, two.url);
    assert.equal((await one.cli("machine", "create", "local/busybox", "--name", "mine")).code, 0);
    assert.equal(String((await two.cli("machine", "ls", "--json")).output), "[]\n");
    const home = temporaryHome(t);
    const backupOf = (dataDirectory: string, name: string) =>
      runCli(t, ["backup", "--to", join(home, name)], {
        environment: { HOME: home, FLOTILLA_URL: one.url, FLOTILLA_DATA_DIR: dataDirectory },
      });
    const other = await backupOf(two.dataDirectory, "other");
    assert.equal(other.code, 1);
    assert.match(other.errors, /has cluster \S+, and the server that commands of this terminal call has .*--data-dir/);
    assert.equal((await backupOf(one.dataDirectory, "own")).code, 0);
    assert.deepEqual([existsSync(join(home, "other")), existsSync(join(home, "own"))], [false, true]);

    const environment = { FLOTILLA_DRIVER: "fake", HOME: home };
    const address = one.url.replace("http://", "");
    const taken = await runCli(t, ["up", "--listen", address], { environment });
    assert.equal(taken.code, 1);
    assert.match(
      taken.errors,
      new RegExp(`^error: a Flotilla already runs at ${address}\n.*--listen 127.0.0.1:\\d+ --data-dir`),
    );
    const shared = await runCli(t, ["up", "--listen", "127.0.0.1:0", "--data-dir", one.dataDirectory], { environment });
    assert.equal(shared.code, 1);
    assert.match(shared.errors, /in use by another Flotilla[^]*error: the server did not start/);
  },
);

some.test("killing up ends server and node, and leaves a directory that starts again", async (t) => {
  const directory = makeDirectory(t);
  const up = await startUp(t, directory);
  const programs = ["server/src/main.ts", "node/src/main.ts"].map((program) => childOf(up.pid, program) ?? 0);
  up.signal("SIGKILL");
  await until(() => programs.every(isGone), { what: "the end of server and node", deadlineMs: START_MS });
  assert.ok(existsSync(join(directory.path, "admin.key")));
  const again = await startUp(t, directory);
  assert.equal((await again.cli("machine", "ls")).code, 0);
});

some.run(TESTS_PER_RUN);
