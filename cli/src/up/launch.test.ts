/**
 * What is said where the node cannot be started.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
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
