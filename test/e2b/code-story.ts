/**
 * What a program does with the code interpreter, through E2B's own client.
 */
import assert from "node:assert/strict";
import type { Sandbox } from "@e2b/code-interpreter";

/** Throws at the first answer that is not what a notebook gives. */
export async function playCode(sandbox: Sandbox): Promise<void> {
  const shown: string[] = [];
  const first = await sandbox.runCode("x = 20\nprint('hi')\nx + 1", { onStdout: ({ line }) => void shown.push(line) });
  assert.deepEqual([first.text, first.error, shown.join("")], ["21", undefined, "hi\n"]);
  assert.equal((await sandbox.runCode("x * 2")).text, "40");
  const failed = await sandbox.runCode("1 / 0");
  assert.deepEqual([failed.error?.name, failed.error?.value], ["ZeroDivisionError", "division by zero"]);
  assert.equal((await sandbox.runCode("import os; os.environ['NAME']", { envs: { NAME: "é" } })).text, "'é'");
  assert.equal((await sandbox.runCode("'NAME' in os.environ")).text, "False");
  const script = await sandbox.runCode("const a = [1, 2]; console.log('js'); a.map((n) => n + 1)", { language: "js" });
  assert.deepEqual([script.text, script.logs.stdout.join("")], ["[ 2, 3 ]", "js\n"]);
  assert.equal((await sandbox.runCode("a.length", { language: "javascript" })).text, "2");
  const context = await sandbox.createCodeContext({ cwd: "/tmp" });
  assert.equal((await sandbox.runCode("import os; x = os.getcwd(); x", { context })).text, "'/tmp'");
  assert.equal((await sandbox.runCode("x")).text, "20");
  const ids = (await sandbox.listCodeContexts()).map(({ id }) => id);
  assert.ok(ids.includes(context.id));
  await sandbox.restartCodeContext(context);
  assert.equal((await sandbox.runCode("x", { context })).error?.name, "NameError");
  await sandbox.removeCodeContext(context);
  await assert.rejects(sandbox.runCode("1", { context }));
  await assert.rejects(sandbox.runCode("import time; time.sleep(60)", { timeoutMs: 1000 }), /timed? ?out|timeout/i);
  assert.equal((await sandbox.runCode("x + 2")).text, "22", "the context outlives what was interrupted");
}
