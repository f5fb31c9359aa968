/**
 * `flotilla login` on a terminal.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
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
