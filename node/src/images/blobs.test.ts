/**
 * Layers of many frames, and layers that bring no content while they are decompressed.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { decompress, UnpackBudget } from "./blobs.ts";

const COUNT = 20_000;
const repeated = (piece: Buffer): Buffer => Buffer.alloc(COUNT * piece.byteLength, piece);

const SKIPPED = Buffer.from("502a4d1800000000", "hex");
/** A frame without a checksum. Its blocks have no bytes, and the last one is marked. */
const HEAD = Buffer.from("28b52ffd0000", "hex");
const [BLOCK, LAST_BLOCK] = [Buffer.from("000000", "hex"), Buffer.from("010000", "hex")];

test("a cancelled layer ends at once, also when its frames, blocks or members have no content", async () => {
  await using directory = await temporaryDirectory();
  const layers = {
    skipped: repeated(SKIPPED),
    frames: repeated(Buffer.concat([HEAD, LAST_BLOCK])),
    blocks: Buffer.concat([HEAD, repeated(BLOCK), LAST_BLOCK]),
    members: repeated(gzipSync("")),
  };
  for (const [name, bytes] of Object.entries(layers)) {
    const [source, target] = [join(directory.path, name), join(directory.path, `${name}.tar`)];
    await writeFile(source, bytes);
    const cancelled = new AbortController();
    const decompressed = decompress({ source, target, bytesMax: 1, signal: cancelled.signal });
    cancelled.abort(new Error("all callers have cancelled"));
    await assert.rejects(decompressed, /all callers have cancelled/, name);
  }
});

test("frames of zstd, small and large, follow each other, and layers share the number that an image may have", async () => {
  await using directory = await temporaryDirectory();
  const [source, target] = [join(directory.path, "layer"), join(directory.path, "layer.tar")];
  const contents = ["", "a", "b".repeat(100_000), randomBytes(300_000).toString("latin1"), "c"];
  await writeFile(source, Buffer.concat([SKIPPED, ...contents.map((content) => zstdCompressSync(content)), SKIPPED]));
  const budget = new UnpackBudget();
  budget.framesLeft = 10;
  const options = { source, target, bytesMax: 1e6, signal: new AbortController().signal, budget };
  await decompress(options);
  assert.equal(await readFile(target, "utf8"), contents.join(""));
  assert.equal(budget.framesLeft, 3);
  await assert.rejects(decompress(options), /^Error: it has more than \d+ frames of zstd$/);
});

test("the files of an image unpack to 64 MB and 200 times their size, and one that is repeated counts once", () => {
  const [free, mb] = [64 * 1024 ** 2, 1024 ** 2];
  const budget = new UnpackBudget();
  budget.begin("a", mb);
  budget.begin("a", mb);
  budget.begin("b", mb);
  budget.add(free);
  budget.add(400 * mb);
  assert.throws(
    () => budget.add(1),
    /unpacks to more than 200 times its compressed size \(64 MB are always possible\)/,
  );
});
