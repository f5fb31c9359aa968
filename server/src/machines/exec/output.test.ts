/**
 * What is kept of a command's output, to the byte.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EXEC_B64_BYTES_MAX, EXEC_TEXT_BYTES_MAX } from "@flotilla/contract/limits";
import fc from "fast-check";
import { Budget } from "../../fairness/budget.ts";
import { CollectedOutput, cutAt, outputBudget } from "./output.ts";

const share = () => ({ budget: outputBudget(), tenantId: "tenant-1" });

test("text is cut between code points, wherever the cap falls", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 60 }), fc.nat(120), (text, max) => {
      const bytes = Buffer.from(text);
      const end = cutAt(bytes, max);
      assert.ok(end <= max && (bytes.byteLength <= max || end > max - 4));
      assert.equal(text.startsWith(bytes.toString("utf8", 0, end)), true);
    }),
  );
});

test("bytes that are not text are cut at the cap", () => {
  assert.equal(cutAt(Buffer.alloc(10, 0x80), 5), 5);
});

test("what fits is given back exactly, in both forms", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 10 }), (chunks) => {
      using output = new CollectedOutput("both", share());
      for (const chunk of chunks) output.onOutput("stderr", chunk);
      const all = Buffer.concat(chunks);
      const fields = output.fields();
      assert.equal(fields.stderrB64, all.toString("base64"));
      assert.equal(fields.stderr, all.toString("utf8"));
      assert.deepEqual([fields.stdout, fields.stdoutTruncated, fields.stderrTruncated], ["", false, false]);
    }),
  );
});

test("bytes outside UTF-8 become no more text than the cap", () => {
  for (const bytes of [Math.ceil(EXEC_TEXT_BYTES_MAX / 3), EXEC_TEXT_BYTES_MAX]) {
    using output = new CollectedOutput("both", share());
    output.onOutput("stdout", Buffer.alloc(bytes, 0xff));
    const { stdout, stdoutB64, stdoutTruncated, stdoutB64Truncated } = output.fields();
    assert.ok(Buffer.byteLength(stdout) <= EXEC_TEXT_BYTES_MAX && Buffer.byteLength(stdout) > EXEC_TEXT_BYTES_MAX - 3);
    assert.deepEqual([stdoutTruncated, stdoutB64Truncated], [true, false]);
    assert.equal(Buffer.from(stdoutB64 ?? "", "base64").byteLength, bytes);
  }
});

test("one byte over a cap sets the flag, and nothing over it is kept", () => {
  using text = new CollectedOutput("text", share());
  text.onOutput("stdout", Buffer.alloc(EXEC_TEXT_BYTES_MAX + 1, "a"));
  assert.deepEqual([text.fields().stdout.length, text.fields().stdoutTruncated], [EXEC_TEXT_BYTES_MAX, true]);
  using b64 = new CollectedOutput("b64", share());
  b64.onOutput("stdout", Buffer.alloc(EXEC_B64_BYTES_MAX));
  assert.equal(b64.fields().stdoutTruncated, false);
  b64.onOutput("stdout", Buffer.alloc(1));
  assert.equal(b64.fields().stdoutTruncated, true);
  assert.equal(Buffer.from(b64.fields().stdoutB64 ?? "", "base64").byteLength, EXEC_B64_BYTES_MAX);
});

test("base64 that ends at the cap says so, in a separate flag", () => {
  using output = new CollectedOutput("both", share());
  output.onOutput("stdout", Buffer.alloc(EXEC_B64_BYTES_MAX + 1));
  output.onOutput("stderr", Buffer.alloc(EXEC_TEXT_BYTES_MAX + 1, "e"));
  const fields = output.fields();
  assert.deepEqual([fields.stdoutTruncated, fields.stdoutB64Truncated], [true, true]);
  // The text alone is cut; all of it is in the base64.
  assert.deepEqual([fields.stderrTruncated, fields.stderrB64Truncated], [true, false]);
});

test("the outputs of a tenant's commands share a budget, which ends with them and is not another tenant's", () => {
  const budget = new Budget({ perHolder: 3 * EXEC_TEXT_BYTES_MAX, all: 6 * EXEC_TEXT_BYTES_MAX });
  const chunk = Buffer.alloc(2 * EXEC_TEXT_BYTES_MAX);
  const mine = { budget, tenantId: "mine" };
  const first = new CollectedOutput("both", mine);
  first.onOutput("stdout", chunk);
  assert.equal(first.fields().stdoutTruncated, true);
  using second = new CollectedOutput("both", mine);
  second.onOutput("stdout", chunk);
  assert.equal(second.fields().stdoutB64, "");
  using other = new CollectedOutput("b64", { budget, tenantId: "other" });
  other.onOutput("stdout", chunk);
  assert.equal(other.fields().stdoutTruncated, false);
  first[Symbol.dispose]();
  using third = new CollectedOutput("b64", mine);
  third.onOutput("stdout", chunk);
  assert.equal(third.fields().stdoutTruncated, false);
});

test("a command that writes single bytes does not take a hundred times their memory", () => {
  const outputs = Array.from({ length: 4 }, () => new CollectedOutput("both", share()));
  const before = process.memoryUsage();
  // As they arrive: each is a part of what was read from the node.
  for (const output of outputs) {
    for (let at = 0; at < EXEC_TEXT_BYTES_MAX; at += 4096) {
      const read = Buffer.alloc(4096, "a");
      for (let index = 0; index < read.byteLength; index += 1)
        output.onOutput("stdout", read.subarray(index, index + 1));
    }
  }
  const after = process.memoryUsage();
  const bytes = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  for (const output of outputs) {
    assert.equal(output.fields().stdout.length, EXEC_TEXT_BYTES_MAX);
    output[Symbol.dispose]();
  }
  // Most of it is garbage; an object for each byte takes several times as much.
  assert.ok(bytes < 128 * EXEC_TEXT_BYTES_MAX, `${bytes} bytes for ${outputs.length} outputs of 1 MiB`);
});
