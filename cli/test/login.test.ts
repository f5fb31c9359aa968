/**
 * `flotilla login` and the hangup of a terminal.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { until } from "../../test/support/until.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const skip = spawnSync("script", ["--version"]).status !== 0 && "no script";

test("a hangup at the question for the key leaves a terminal that shows what is typed", { skip }, async (t) => {
  const login = `sh -c 'echo pid $$; exec ${process.execPath} ${MAIN} login'`;
  const child = spawn("script", ["-qec", `${login}; echo "ended with $?"; stty -a`, "/dev/null"], {
    env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", SHELL: "/bin/sh" },
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  let seen = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (seen += text));
  const shows = (text: string) => until(() => seen.includes(text), { what: `${text} in ${JSON.stringify(seen)}` });
  await shows("API key for ");
  process.kill(Number(/pid (\d+)/.exec(seen)?.[1]), "SIGHUP");
  await shows("ended with ");
  await until(() => child.exitCode !== null, { what: "the end of the terminal" });
  assert.match(seen, /cancelled; nothing was saved[^]*ended with 1\r\n[^]* icanon [^]* echo /);
});

const SIGHUP_BIT = 1n;
const LAUNCHER = fileURLToPath(new URL("../../flotilla", import.meta.url));

test("a hangup does not end a program that was started with nohup", async (t) => {
  const line = `trap '' HUP; exec sh ${LAUNCHER} login --key-stdin`;
  const child = spawn("sh", ["-c", line], {
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: "/nonexistent",
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    },
    stdio: ["pipe", "ignore", "pipe"],
  });
  t.after(() => child.kill("SIGKILL"));
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  const handlesHangup = (): boolean => {
    const caught = /^SigCgt:\s*(\w+)/m.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1];
    return (BigInt(`0x${caught}`) & SIGHUP_BIT) !== 0n;
  };
  await until(handlesHangup, { what: "a program that handles the signal", deadlineMs: 10_000 });
  child.kill("SIGHUP");
  child.stdin.end();
  const ended = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  assert.deepEqual(ended, [1, null]);
  assert.match(said, /no key was given/);
});
