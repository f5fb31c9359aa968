/**
 * Layers that bring no content while they are decompressed.
 */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { decompress } from "./blobs.ts";

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
