/**
 * What is said where the node cannot be started.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

test("a user without root and sudo gets a command for root that keeps the directory and names the other settings", () => {
  const script = `
    const { nodeLaunch } = await import(${JSON.stringify(import.meta.resolve("./launch.ts"))});
    if (process.getuid() === 0) process.setuid(65534);
    try {
      nodeLaunch({ needsRoot: true, dataDirectory: "/srv/my data", hasTerminal: false });
    } catch (error) {
      console.log(error.advice);
    }`;
  const argv = ["--input-type=module", "--eval", script];
  const hint = execFileSync(process.execPath, argv, { env: { PATH: "/nonexistent" }, encoding: "utf8" });
  assert.match(
    hint,
    /^run this as root, with the other settings of this call: .*flotilla'? up --data-dir '\/srv\/my data'\n$/,
  );
});

test("a node started through sudo cannot be restarted once sudo asks for the password again", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-sudo-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const sudo = join(directory, "sudo");
  writeFileSync(sudo, `#!/bin/sh\n[ ! -e ${directory}/asks ]\n`, { mode: 0o755 });
  const script = `
    const { chmodSync, writeFileSync } = await import("node:fs");
    const { nodeLaunch } = await import(${JSON.stringify(import.meta.resolve("./launch.ts"))});
    chmodSync(${JSON.stringify(directory)}, 0o777);
    if (process.getuid() === 0) process.setuid(65534);
    const launch = nodeLaunch({ needsRoot: true, dataDirectory: "/srv/data", hasTerminal: false })({}, "http://127.0.0.1:1");
    console.log(launch.command[0], launch.hindrance());
    writeFileSync(${JSON.stringify(join(directory, "asks"))}, "");
    console.log(launch.hindrance());`;
  const argv = ["--input-type=module", "--eval", script];
  const said = execFileSync(process.execPath, argv, { env: { PATH: directory }, encoding: "utf8" });
  assert.match(said, /^sudo null\nsudo asks for the password again, so it cannot be restarted: stop Flotilla .*\n$/);
});
