/**
 * What the jail's launcher does to a process, seen from outside.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { jailArgv } from "../src/driver/qemu/jail.ts";

const skip = process.getuid?.() !== 0 && "a jail with a user of its own takes root";

/** Starts the words in its first argument detached, as the agent does, says their process id and stays. */
const STARTER =
  "const c = require('node:child_process').spawn(process.argv[1], process.argv.slice(2), { detached: true, stdio: 'ignore' });" +
  "console.log(c.pid); setInterval(() => {}, 1000);";

test("what is to die with its starter is gone when that was killed", { skip }, async () => {
  const argv = jailArgv(
    {
      nodeDirectory: import.meta.dirname,
      guestDirectory: import.meta.dirname,
      uid: 700_001,
      hasKvm: false,
      network: null,
      groups: [],
      diesWithStarter: true,
    },
    "sleep",
    ["60"],
  );
  const starter = spawn(process.execPath, ["-e", STARTER, ...argv], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(starter.stdout, "data")) as [Buffer];
  const pid = Number(line.toString());
  const isJailed = (): boolean => readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith("sleep\0");
  await until(isJailed, { what: "the jailed process" });
  starter.kill("SIGKILL");
  try {
    await until(() => !existsSync(`/proc/${pid}`), { what: "its end", deadlineMs: 5_000 });
  } finally {
    if (existsSync(`/proc/${pid}`)) process.kill(pid, "SIGKILL");
  }
  assert.ok(!existsSync(`/proc/${pid}`));
});
