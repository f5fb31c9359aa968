/**
 * A machine's log on the disk: its content after writes, rotations and crashes, and reading it back.
 */
import assert from "node:assert/strict";
import { appendFile, mkdir, readdir, readFile, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type LogPosition, logLine, MachineLog } from "../src/machines/workload/machine-log.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const BOOT = "0123456789ab";

async function textsFrom(log: MachineLog, position: LogPosition): Promise<readonly string[]> {
  const texts: string[] = [];
  let at = position;
  for (;;) {
    const { lines, next } = await log.read(at);
    if (lines.length === 0) return texts;
    texts.push(...lines.map(({ text }) => text));
    at = next;
  }
}

const numbered = (first: number, count: number, filler = ""): string =>
  Array.from({ length: count }, (_, at) =>
    logLine(1, BOOT, first + at + 1, "output", `${first + at} ${filler}`.trim()),
  ).join("");

test("what was written is read back, including its last lines, empty lines and binary data", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  assert.deepEqual(await textsFrom(log, await log.tail(100)), []);
  await log.append(logLine(5, BOOT, 3, "output", "a b  c "));
  await log.append(logLine(6, BOOT, 4, "output", "") + logLine(7, BOOT, 4, "note", "noted"));
  await log.append(logLine(8, BOOT, 9, "output", Buffer.from("größe ✓").toString("latin1")));
  await log.append(logLine(9, BOOT, 10, "output", "\xff"));
  const { lines } = await log.read(await log.tail(100));
  assert.deepEqual(lines, [
    { at: 5, source: "workload", text: "a b  c " },
    { at: 6, source: "workload", text: "" },
    { at: 7, source: "node", text: "noted" },
    { at: 8, source: "workload", text: "größe ✓" },
    { at: 9, source: "workload", text: "�" },
  ]);
  for (const count of [0, 1, 2, 4, 5, 6]) {
    assert.equal((await textsFrom(log, await log.tail(count))).length, Math.min(count, 5));
  }
});

test("the tail is exact wherever chunks and files end", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  const filler = "x".repeat(900);
  for (let first = 0; first < 12_000; first += 500) await log.append(numbered(first, 500, filler));
  assert.ok((await readdir(join(directory.path, "logs"))).length === 2);
  for (const count of [1, 63, 64, 65, 66, 1000, 2999, 3000, 10_000]) {
    const texts = await textsFrom(log, await log.tail(count));
    assert.equal(texts.length, count);
    assert.equal(texts[0], `${12_000 - count} ${filler}`);
  }
});

test("reading to an end terminates, however fast the log grows", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  await log.append(numbered(0, 10));
  const end = await log.end();
  await log.append(numbered(10, 10));
  const { lines, next } = await log.read(await log.tail(15), end);
  assert.deepEqual(
    lines.map(({ text }) => text),
    ["5", "6", "7", "8", "9"],
  );
  assert.deepEqual(await log.read(next, end), { lines: [], starts: [], next, isCut: false });
  // The file with that end may have been removed.
  for (let first = 20; first < 2_600; first += 100) await log.append(numbered(first, 100, "x".repeat(10_000)));
  assert.deepEqual((await log.read(next, end)).lines, []);
});

test("two files are kept, however much is written, and a reader that was too slow continues at the oldest line", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  await log.append(numbered(0, 1));
  const start = await log.tail(1);
  const filler = "x".repeat(10_000);
  for (let first = 1; first < 4_001; first += 100) await log.append(numbered(first, 100, filler));
  const names = await readdir(join(directory.path, "logs"));
  assert.equal(names.length, 2);
  let bytes = 0;
  for (const name of names) bytes += (await stat(join(directory.path, "logs", name))).size;
  assert.ok(bytes < 18 * 1024 * 1024, `${bytes}`);
  const texts = await textsFrom(log, start);
  assert.ok(texts.length > 800 && texts.length < 2_000);
  assert.equal(texts.at(-1), `4000 ${filler}`);
});

test("an incomplete line left by a crash is removed, and its output is requested again", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "logs", "1");
  const before = new MachineLog(join(directory.path, "logs"));
  await before.append(logLine(1, BOOT, 10, "output", "whole") + logLine(2, BOOT, 20, "output", "half of it"));
  await truncate(path, (await stat(path)).size - 3);
  const after = new MachineLog(join(directory.path, "logs"));
  assert.deepEqual(await after.progressOf(BOOT), { offset: 10, hasEnded: false });
  await after.append(logLine(3, BOOT, 20, "output", "again"));
  assert.deepEqual(await textsFrom(after, await after.tail(9)), ["whole", "again"]);
});

test("a file with only an incomplete line, and unknown files, are ignored", async () => {
  await using directory = await temporaryDirectory();
  const logs = join(directory.path, "logs");
  await mkdir(logs);
  await appendFile(join(logs, "7"), "x".repeat(200_000));
  await appendFile(join(logs, "note.txt"), "mine");
  const log = new MachineLog(logs);
  assert.deepEqual(await log.progressOf(BOOT), { offset: 0, hasEnded: false });
  await log.append(numbered(1, 1));
  assert.deepEqual(await textsFrom(log, await log.tail(9)), ["1"]);
  assert.equal(await readFile(join(logs, "note.txt"), "utf8"), "mine");
});

test("the stored offset of a boot's output is known, and whether its workload has ended", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  await log.append(logLine(1, BOOT, 10, "output", "x".repeat(16_384)));
  assert.deepEqual(await log.progressOf(BOOT), { offset: 10, hasEnded: false });
  assert.deepEqual(await log.progressOf("another"), { offset: 0, hasEnded: false });
  await log.append(logLine(1, BOOT, 10, "end", "ended"));
  assert.deepEqual(await log.progressOf(BOOT), { offset: 10, hasEnded: true });
  await log.append(logLine(1, BOOT, 12, "after", "a child"));
  assert.deepEqual(await new MachineLog(join(directory.path, "logs")).progressOf(BOOT), { offset: 12, hasEnded: true });
});

const line = (at: number, text: string): string => logLine(at, BOOT, 1, "output", text);

test("a time is found in either file, between lines, before the first and after the last", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  assert.deepEqual(await log.seek(5), { file: 0, byte: 0 });
  const filler = "x".repeat(3_000);
  const count = 4_000;
  // Two lines at every tenth millisecond, in two files.
  for (let first = 0; first < count; first += 200) {
    const lines = Array.from({ length: 200 }, (_, at) =>
      line(1_000 + 10 * Math.floor((first + at) / 2), `${first + at} ${filler}`),
    );
    await log.append(lines.join(""));
  }
  assert.equal((await readdir(join(directory.path, "logs"))).length, 2);
  const first = async (at: number): Promise<string | undefined> => (await textsFrom(log, await log.seek(at)))[0];
  for (const at of [0, 2, 500, 2_600, 2_602, 3_998]) {
    const time = 1_000 + 10 * Math.floor(at / 2);
    assert.equal(await first(time), `${at} ${filler}`, `${at}`);
    assert.equal(await first(time - 3), `${at} ${filler}`, `before ${at}`);
  }
  assert.equal(await first(0), `0 ${filler}`);
  assert.equal(await first(1_000 + 10 * count), undefined);
  const longAgo = await log.start();
  assert.deepEqual(longAgo, { position: { file: 1, byte: 0 }, isTrimmed: false });
});

test("a position inside a line is moved to the next line, and one of no file stays", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  await log.append(line(1, "one") + line(2, "two"));
  const { starts } = await log.read({ file: 1, byte: 0 });
  const [, second = 0] = starts;
  for (let byte = 1; byte <= second; byte++) assert.equal((await log.wholeLine({ file: 1, byte })).byte, second);
  const end = await log.end();
  assert.deepEqual(await log.wholeLine({ file: 1, byte: end.byte - 1 }), {
    file: 1,
    byte: end.byte - 1 < second ? second : end.byte - 1,
  });
  assert.deepEqual(await log.wholeLine({ file: 1, byte: 1e9 }), end);
  assert.deepEqual(await log.wholeLine({ file: 7, byte: 3 }), { file: 7, byte: 3 });
});

test("a reader whose lines were removed is notified, and one that begins with the log is not", async () => {
  await using directory = await temporaryDirectory();
  const log = new MachineLog(join(directory.path, "logs"));
  await log.append(line(1, "first"));
  assert.equal((await log.read({ file: 0, byte: 0 })).isCut, false);
  const filler = "x".repeat(10_000);
  for (let first = 0; first < 4_000; first += 100) await log.append(numbered(first, 100, filler));
  assert.equal((await log.read({ file: 1, byte: 0 })).isCut, true);
  const { position, isTrimmed } = await log.start();
  assert.deepEqual([position.byte, isTrimmed], [0, true]);
  assert.equal((await log.read(position)).isCut, false);
});
