/**
 * However Flotilla is stopped, only machines remain: no database, no program, no waiting process.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createLog } from "../../server/src/log.ts";
import { putCluster } from "../../server/test/support/cluster.ts";
import { makeDisk } from "../../server/test/support/disk.ts";
import { DrawnTests } from "../../test/support/drawn.ts";
import { until } from "../../test/support/until.ts";
import { startCli, temporaryHome } from "./run-cli.ts";
import { childOf, commandLine, isGone, makeDirectory, processesOf, ROOT, START_MS, startUp } from "./run-up.ts";

/** How many of seven a run plays, besides that of a full disk. */
const TESTS_PER_RUN = 4;

/** Waits until no process of the data directory runs; the error lists the processes. */
async function nothingIsLeft(dataDirectory: string): Promise<void> {
  await until(() => processesOf(dataDirectory).length === 0, { what: "the end of all programs" }).catch(() =>
    assert.deepEqual(processesOf(dataDirectory), []),
  );
}

const some = new DrawnTests();

some.test("signals that arrive together count as one, and a later one leaves nothing behind either", async (t) => {
  for (const pauseMs of [0, 1_100]) {
    const up = await startUp(t, makeDirectory(t));
    // A request that lasts longer than any stop: only a second signal cuts it off.
    assert.equal((await up.cli("machine", "create", "local/busybox", "--name", "busy", "--start")).code, 0);
    const command = ["machine", "exec", "busy", "--", "sh", "-c", "echo runs; sleep 600"];
    const { child, ran: exec } = startCli(t, command, { environment: up.environment });
    let said = "";
    child.stdout?.on("data", (chunk: Buffer) => (said += chunk));
    await until(() => said !== "" || child.exitCode !== null, { what: "the command to run", deadlineMs: START_MS });
    assert.equal(said, "runs\n");
    up.signal("SIGINT");
    const askedAt = performance.now();
    await until(() => performance.now() - askedAt >= pauseMs, { what: "the time between the two signals" });
    up.signal("SIGTERM");
    assert.equal((await up.ran).code, 0, up.said());
    await nothingIsLeft(up.dataDirectory);
    await exec;
  }
});

some.test("an up whose output has no reader restarts its programs and stops in order", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  up.stopReading();
  const [server, node] = ["server/src/main.ts", "node/src/main.ts"].map((name) => childOf(up.pid, name) ?? 0);
  process.kill(server ?? 0, "SIGKILL");
  await until(async () => (await up.cli("machine", "ls")).code === 0, {
    what: "the server's return",
    deadlineMs: START_MS,
  });
  assert.equal(isGone(node ?? 0), false, "the node continues");
  up.signal("SIGTERM");
  assert.equal((await up.ran).code, 0);
  assert.deepEqual(processesOf(up.dataDirectory), []);
});

test("an up that is stopped before it is ready, because its disk is full, does not say that it runs", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, async (t) => {
  const disk = makeDisk(t, "320m");
  // Enough for the database, and too little for its reserve.
  execFileSync("fallocate", ["--length", "262M", join(disk, "filling")]);
  const data = join(disk, "data");
  const environment = { FLOTILLA_DRIVER: "fake", FLOTILLA_LISTEN: "127.0.0.1:0", HOME: temporaryHome(t) };
  const { child, ran } = startCli(t, ["up", "--data-dir", data], { environment, directory: ROOT });
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => (said += chunk));
  await until(() => /"\/readyz","status":503/.test(said) || child.exitCode !== null, {
    what: "a server that is not ready",
    deadlineMs: START_MS,
  });
  child.kill("SIGTERM");
  const { code, output, errors } = await ran;
  assert.deepEqual([code, String(output).trim()], [0, ""], errors);
  await nothingIsLeft(data);
});

some.test("an up that is stopped while it waits for its address starts nothing", async (t) => {
  const other = createServer().listen(0, "127.0.0.1");
  t.after(() => other.close());
  await once(other, "listening");
  const home = temporaryHome(t);
  const data = join(home, "data");
  const { port } = other.address() as AddressInfo;
  const { child, ran } = startCli(t, ["up", "--listen", `127.0.0.1:${port}`, "--data-dir", data], {
    environment: { HOME: home, FLOTILLA_DRIVER: "fake" },
  });
  let errors = "";
  child.stderr?.on("data", (chunk: Buffer) => (errors += chunk));
  // Bit 0, of the last digit, is SIGHUP, the last of the signals that it gets a handler for.
  const status = (): string => readFileSync(`/proc/${child.pid}/status`, "utf8");
  await until(() => commandLine(child.pid ?? 0).includes("\0up\0") && /^SigCgt:.*[13579bdf]$/m.test(status()), {
    what: "its handlers of signals",
  });
  child.kill("SIGTERM");
  await until(() => errors.includes("stopping"), { what: "its answer to the signal" });
  other.close();
  await until(() => child.exitCode !== null, { what: "its end" });
  assert.equal((await ran).code, 0);
  assert.equal(existsSync(data), false);
});

some.test("a program whose up ends while it starts stops in order", async (t) => {
  for (const program of ["server", "node"]) {
    const directory = makeDirectory(t);
    const child = spawn(process.execPath, [join(ROOT, program, "src/main.ts")], {
      env: {
        ...process.env,
        FLOTILLA_DRIVER: "fake",
        FLOTILLA_LISTEN: "127.0.0.1:0",
        FLOTILLA_DATA_DIR: directory.path,
        FLOTILLA_JOIN_TOKEN: `join_${"0".repeat(8)}_${"0".repeat(64)}`,
      },
      stdio: ["ipc", "ignore", "pipe"],
    });
    const ended = once(child, "exit");
    directory.stops.push(() => {
      child.kill("SIGKILL");
      return ended;
    });
    let errors = "";
    child.stderr?.on("data", (chunk: Buffer) => (errors += chunk));
    child.disconnect();
    await until(() => child.exitCode !== null || child.signalCode !== null, { what: "its end" });
    assert.equal(child.exitCode, 0, errors);
    await nothingIsLeft(directory.path);
  }
});

/** Runs `npm start` in its own process group. `wrapper` runs it and gets the text for its standard input. */
async function npmStart(t: TestContext, wrapper: (command: readonly string[]) => readonly [string, ...string[]]) {
  const dataDirectory = makeDirectory(t).path;
  await putCluster(dataDirectory, createLog("error"));
  const [program, ...operands] = wrapper(["npm", "start"]);
  const child = spawn(program, operands, {
    cwd: ROOT,
    env: {
      ...process.env,
      FLOTILLA_DRIVER: "fake",
      FLOTILLA_LISTEN: "127.0.0.1:0",
      FLOTILLA_DATA_DIR: dataDirectory,
    },
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  t.after(() => child.kill("SIGKILL"));
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk));
  let isClosed = false;
  child.once("close", () => (isClosed = true));
  await until(() => output.includes("Ctrl-C stops"), { what: "the greeting", deadlineMs: START_MS });
  const ended = async (): Promise<void> => {
    // Its output closes when the last program that writes to it has ended.
    await until(() => isClosed, { what: "the end of all processes", deadlineMs: START_MS });
    await nothingIsLeft(dataDirectory);
  };
  return { child, said: () => output, ended };
}

const COMMAND = (command: readonly string[]) => command as [string, ...string[]];

some.test("npm start passes on the signal that ends it", async (t) => {
  const { child, said, ended } = await npmStart(t, COMMAND);
  child.kill("SIGTERM");
  await ended();
  assert.match(said(), /stopping the node and the server[^]*the node agent has stopped/);
});

some.test("nothing outlives an npm start that is killed, or whose whole process group gets the signal", async (t) => {
  const killed = await npmStart(t, COMMAND);
  killed.child.kill("SIGKILL");
  await killed.ended();
  const interrupted = await npmStart(t, COMMAND);
  process.kill(-(interrupted.child.pid ?? 0), "SIGINT");
  await interrupted.ended();
});

some.test("Ctrl-C in a terminal stops npm start and leaves nothing behind", async (t) => {
  // script(1) makes the terminal, and types what it reads.
  const { child, said, ended } = await npmStart(t, (command) => ["script", "-qec", command.join(" "), "/dev/null"]);
  assert.match(said(), /admin key +smk_/);
  child.stdin.write("\x03");
  await ended();
});

some.run(TESTS_PER_RUN);
