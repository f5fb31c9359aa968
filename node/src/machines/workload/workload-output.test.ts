/**
 * Output of a workload between the guest and the log: the lines it becomes, and what is held of it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ARRIVALS_MAX, GAPS_MAX, LINE_BYTES_MAX, WorkloadOutput } from "./workload-output.ts";

const BOOT = "0123456789ab";

const emptyOutput = (offset = 0, hasEnded = false): WorkloadOutput => new WorkloadOutput(BOOT, { offset, hasEnded });

interface Taken {
  /** `<epoch ms> <offset> <kind> <text>` */
  readonly lines: readonly string[];
  readonly bytes: number;
  readonly batches: number;
}

function takeAll(output: WorkloadOutput): Taken {
  const lines: string[] = [];
  let bytes = 0;
  let batches = 0;
  for (let batch = output.take(); batch !== null; batch = output.take()) {
    const added = batch.lines.toString("latin1").split("\n").slice(0, -1);
    lines.push(...added.map((line) => line.replace(` ${BOOT}`, "")));
    assert.equal(Number(lines.at(-1)?.split(" ")[1]), batch.offset);
    bytes += batch.bytes;
    batches += 1;
  }
  return { lines, bytes, batches };
}

function add(output: WorkloadOutput, at: number, offset: number, text: string): void {
  output.add(at, offset, Buffer.from(text, "latin1"));
}

test("lines have the time and the offset of their last byte; an incomplete one is held", () => {
  const output = emptyOutput(100);
  add(output, 1, 100, "one\ntw");
  add(output, 2, 106, "o\r\n\nhalf\r");
  assert.deepEqual(takeAll(output), { lines: ["1 104 o one", "2 109 o two", "2 110 o "], bytes: 10, batches: 1 });
  output.close();
  assert.deepEqual(takeAll(output), { lines: ["2 115 o half"], bytes: 5, batches: 1 });
  assert.equal(output.capacity, 0);
});

test("what a line has overwritten is taken when it is asked for, and the rest is the next line", () => {
  const output = emptyOutput();
  add(output, 1, 0, "10%\r20%\r3");
  assert.equal(output.take(), null);
  assert.equal(output.overwritesItself, true);
  const batch = output.take({ withOverwritten: true });
  assert.deepEqual([batch?.lines.toString(), batch?.offset, batch?.bytes], [`1 ${BOOT} 8 o 10%\r20%\r\n`, 8, 8]);
  assert.equal(output.overwritesItself, false);
  assert.equal(output.take({ withOverwritten: true }), null);
  // A carriage return at the end may belong to a line break.
  add(output, 2, 9, "0%\r");
  assert.equal(output.overwritesItself, false);
  add(output, 3, 12, "\n");
  assert.deepEqual(takeAll(output).lines, ["3 13 o 30%"]);
});

test("a gap and the workload's end complete a line; output after the end is marked", () => {
  const output = emptyOutput();
  add(output, 1, 0, "cut");
  add(output, 2, 13, "off");
  output.end(3, "ended");
  assert.equal(output.hasEnded, true);
  add(output, 4, 16, "late\n");
  assert.deepEqual(takeAll(output).lines, [
    "1 3 o cut",
    "2 13 n 10 bytes of the workload's output were lost: no reader could take them",
    "2 16 o off",
    "3 16 e ended",
    "4 21 a late",
  ]);
  const next = emptyOutput(21, true);
  add(next, 5, 21, "later\n");
  assert.deepEqual(takeAll(next).lines, ["5 27 a later"]);
});

test("long lines are split in the same places, whatever the pieces are", () => {
  const long = LINE_BYTES_MAX;
  const lengths = [0, 1, long - 1, long, long + 1, 2 * long, 2 * long + 1];
  const text = lengths.map((length) => `${"x".repeat(length)}\n`).join("");
  const expected = [0, 1, long - 1, long, long, 1, long, long, long, long, 1];
  for (const pieceBytes of [1, 1000, long - 1, long, long + 1, 32 * 1024, text.length]) {
    for (const isTakenBetween of [false, true]) {
      const output = emptyOutput();
      const lines: string[] = [];
      for (let at = 0; at < text.length; at += pieceBytes) {
        add(output, 1, at, text.slice(at, at + pieceBytes));
        if (isTakenBetween) lines.push(...takeAll(output).lines);
      }
      lines.push(...takeAll(output).lines);
      assert.deepEqual(
        lines.map((line) => line.split(" ")[3]?.length),
        expected,
      );
    }
  }
});

test("a carriage return is part of a line that is split after it", () => {
  const output = emptyOutput();
  const start = `${"x".repeat(LINE_BYTES_MAX - 1)}\r`;
  add(output, 1, 0, `${start}rest\n`);
  assert.deepEqual(takeAll(output).lines, [`1 ${LINE_BYTES_MAX} o ${start}`, `1 ${LINE_BYTES_MAX + 5} o rest`]);
});

test("a window of empty lines is held as its bytes, and becomes lines one batch at a time", () => {
  const bytes = 256 * 1024;
  const output = emptyOutput();
  for (let offset = 0; offset < bytes; offset += 1) add(output, offset, offset, "\n");
  assert.equal(output.capacity, bytes);
  const first = output.take();
  assert.ok(first !== null && first.lines.byteLength < 150 * 1024);
  add(output, bytes, bytes, "\n".repeat(first.bytes));
  assert.equal(output.capacity, bytes);
  const { lines, batches, bytes: taken } = takeAll(output);
  assert.equal(taken, bytes);
  assert.ok(batches > 50);
  assert.equal(lines.at(-1), `${bytes} ${bytes + first.bytes} o `);
  assert.equal(output.capacity, 0);
});

test("more times than are held become later ones, in order", () => {
  const output = emptyOutput();
  const count = ARRIVALS_MAX + 100;
  for (let at = 1; at <= count; at += 1) add(output, at, at - 1, "\n");
  const times = takeAll(output).lines.map((line) => Number(line.split(" ")[0]));
  const expected = Array.from({ length: count }, (_, at) => (at + 1 < ARRIVALS_MAX ? at + 1 : count));
  assert.deepEqual(times, expected);
});

test("output after too many gaps is discarded, counted and acknowledged", () => {
  const output = emptyOutput();
  const count = GAPS_MAX + 500;
  // Each byte follows a gap of one byte.
  for (let at = 0; at < count; at += 1) add(output, 1, 2 * at + 1, "x");
  const { lines, bytes } = takeAll(output);
  assert.equal(bytes, count);
  assert.equal(lines.filter((line) => line.includes(" n 1 bytes")).length, GAPS_MAX);
  assert.equal(lines.filter((line) => line.endsWith(" o x")).length, GAPS_MAX);
  add(output, 2, 2 * count, "y\n");
  assert.deepEqual(takeAll(output), {
    lines: [
      `2 ${2 * count} n 1000 bytes of the workload's output were lost: no reader could take them`,
      `2 ${2 * count + 2} o y`,
    ],
    bytes: 2,
    batches: 1,
  });
});

test("nothing is left after a clear", () => {
  const output = emptyOutput();
  add(output, 1, 0, "one\ntwo");
  output.clear();
  assert.equal(output.take(), null);
  assert.equal(output.capacity, 0);
});
