/**
 * Machines whose kernel kills processes for lack of memory, with the fake driver: their timeline names them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineIdOf, startTestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");

test("the timeline names a process that the kernel has killed for lack of memory", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  for (const script of ["out-of-memory python3", "out-of-memory"]) {
    const options = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false };
    const exec = node.fleet.find(A)?.access.guest?.exec({ argv: script.split(" "), ...options });
    exec?.stdout.resume();
    exec?.stderr.resume();
    assert.deepEqual(await exec?.exit, { exitCode: 137 });
  }
  const text = "the machine is out of memory: its kernel killed";
  assert.deepEqual(node.events, [
    { machineId: A, level: "warn", message: `${text} the process "python3"` },
    { machineId: A, level: "warn", message: `${text} a process` },
  ]);
  await node.fleet.release();
});
