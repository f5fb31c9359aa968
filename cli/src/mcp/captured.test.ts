/**
 * What is held and shown of a command's output.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Captured } from "./captured.ts";

const MIB = 1024 * 1024;

test("short output is shown as it is, and bytes that are not UTF-8 as replacement characters", () => {
  const captured = new Captured();
  captured.add(Buffer.from("é\0").subarray(0, 1));
  captured.add(Buffer.from("é\0").subarray(1));
  captured.add(Uint8Array.of(0xff));
  assert.deepEqual([captured.isLong, captured.show("")], [false, { text: "é\0\ufffd", bytes: 4 }]);
});

test("long output is shown by its beginning and its end, with where the rest is", () => {
  const captured = new Captured();
  for (let line = 0; line < 10_000; line++) captured.add(Buffer.from(`line ${line}\n`));
  const { text, bytes, path } = captured.show("all of it is in /x", "/x");
  assert.deepEqual(
    [captured.isLong, captured.isWhole, captured.kept().byteLength === bytes, path],
    [true, true, true, "/x"],
  );
  assert.match(
    text,
    /^line 0\n[^]*\[\d+ bytes in all, \d+ of them left out here: all of it is in \/x\][^]*line 9999\n$/,
  );
});

test("no more than 8 MiB is held of output without end", () => {
  const captured = new Captured();
  const piece = new Uint8Array(MIB);
  for (let count = 0; count < 20; count++) captured.add(piece);
  assert.deepEqual([captured.bytes, captured.kept().byteLength, captured.isWhole], [20 * MIB, 8 * MIB, false]);
});
