/**
 * The output of a command as text.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ExecEvent } from "@flotilla/sdk";
import { collect } from "./output.ts";

async function* events(...all: readonly ExecEvent[]): AsyncGenerator<ExecEvent, void, undefined> {
  yield* all;
}
const stdout = (...bytes: number[]): ExecEvent => ({ kind: "stdout", bytes: new Uint8Array(bytes) });

test("a character in two pieces is one, and each piece is passed as it comes", async () => {
  const said: string[] = [];
  const parts = events(stdout(0x61, 0xc3), stdout(0xa4), stdout(0xff), { kind: "exit", exitCode: 3 });
  const result = await collect(parts, { onStdout: (text) => said.push(text) });
  assert.deepEqual(result, { stdout: "aä\ufffd", stderr: "", exitCode: 3 });
  assert.deepEqual(said, ["a", "ä", "\ufffd"]);
});

test("a command that writes without end is ended with an error", async () => {
  let hasEnded = false;
  async function* endless(): AsyncGenerator<ExecEvent, void, undefined> {
    const bytes = new Uint8Array(8 * 1024 * 1024);
    try {
      for (;;) yield { kind: "stderr", bytes };
    } finally {
      hasEnded = true;
    }
  }
  await assert.rejects(collect(endless(), {}), /wrote more than/);
  assert.ok(hasEnded);
});
