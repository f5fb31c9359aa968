/**
 * What of an exec is sent to the node, with the host's own shell.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { commandOf } from "./request.ts";

test("a line that begins like an option is a line", () => {
  assert.deepEqual(commandOf({ command: "echo hi" }).start.argv, ["sh", "-lc", "echo hi"]);
  for (const line of ["-x; echo after", "+x; echo after"]) {
    const [program = "", ...operands] = commandOf({ command: line }).start.argv;
    const { stdout, stderr } = spawnSync(program, operands, { encoding: "utf8" });
    assert.equal(stdout, "after\n");
    assert.match(stderr, /[-+]x: .*not found/);
  }
});
