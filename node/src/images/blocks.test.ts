/**
 * Streams of blocks: what arrives is what was read, whatever is sparse and wherever it broke off.
 */
import assert from "node:assert/strict";
import { mkdtemp, open, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { BLOCK_BYTES } from "@flotilla/contract/link/blocks";
import { contentHash, mergeExtents, readBlocks, readExtents, resumeAt, writeBlocks, writtenHash } from "./blocks.ts";

const directory = await mkdtemp(join(tmpdir(), "flotilla-blocks-"));
after(() => rm(directory, { recursive: true, force: true }));
const { signal } = new AbortController();
const pathOf = (name: string): string => join(directory, name);

/** A file with data in the first, the third and a part of the last block, and holes. */
async function sparseFile(name: string): Promise<string> {
  const path = pathOf(name);
  await writeFile(path, Buffer.alloc(100, "a"));
  await using file = await open(path, "r+");
  await file.write(Buffer.alloc(BLOCK_BYTES, "c"), 0, BLOCK_BYTES, 2 * BLOCK_BYTES);
  await file.write(Buffer.from("end"), 0, 3, 40 * BLOCK_BYTES);
  return path;
}

async function receive(path: string, stream: AsyncIterable<Buffer>, bytesMax = Number.POSITIVE_INFINITY) {
  await using file = await open(path, (await resumeAt(path)) === 0 ? "w" : "r+");
  let bytes = 0;
  return await writeBlocks(file, stream, (more) => {
    bytes += more;
    if (bytes > bytesMax) throw new Error("broken off");
  });
}

async function sent(path: string, from = 0): Promise<number> {
  let bytes = 0;
  for await (const chunk of readBlocks(path, from)) bytes += chunk.byteLength;
  return bytes;
}

test("a sparse file arrives whole, and its holes are not sent", async () => {
  const source = await sparseFile("source");
  assert.ok((await sent(source)) < 5 * BLOCK_BYTES);
  const written = await receive(pathOf("copy"), readBlocks(source, 0));
  assert.deepEqual(await readFile(pathOf("copy")), await readFile(source));
  assert.equal(written.sha256, await contentHash(source, signal));
  assert.equal(written.sha256, await contentHash(pathOf("copy"), signal));
});

test("the hash is that of the content, whatever of it is allocated", async () => {
  const source = await sparseFile("sparse");
  await writeFile(pathOf("dense"), await readFile(source));
  assert.equal(await contentHash(pathOf("dense"), signal), await contentHash(source, signal));
  await truncate(pathOf("dense"), (await stat(source)).size + 1);
  assert.notEqual(await contentHash(pathOf("dense"), signal), await contentHash(source, signal));
});

test("a copy that broke off continues where it was, and ends with the whole content's hash", async () => {
  const source = await sparseFile("long");
  const copy = pathOf("half");
  await assert.rejects(receive(copy, readBlocks(source, 0), BLOCK_BYTES), /broken off/);
  const from = await resumeAt(copy);
  assert.equal(from % BLOCK_BYTES, 0);
  assert.ok(from >= BLOCK_BYTES);
  assert.ok((await sent(source, from)) < (await sent(source)));
  const written = await receive(copy, readBlocks(source, from));
  assert.deepEqual(await readFile(copy), await readFile(source));
  assert.equal(written.sha256, await contentHash(copy, signal));
});

test("a stream that ends early, or is out of order, is refused", async () => {
  const source = await sparseFile("cut");
  const chunks: Buffer[] = [];
  for await (const chunk of readBlocks(source, 0)) chunks.push(chunk);
  async function* first(count: number) {
    yield* chunks.slice(0, count);
  }
  await assert.rejects(receive(pathOf("short"), first(chunks.length - 1)), /broke off/);
  async function* backwards() {
    yield* chunks.slice(0, -1).toReversed();
  }
  await assert.rejects(receive(pathOf("backwards"), backwards()), /out of order/);
});

test("an empty file is a stream of its end alone", async () => {
  await writeFile(pathOf("empty"), "");
  const written = await receive(pathOf("empty-copy"), readBlocks(pathOf("empty"), 0));
  assert.deepEqual([written.size, (await stat(pathOf("empty-copy"))).size], [0, 0]);
});

test("parts of a file arrive as they are, zeros too, and their hash is that of what was written", async () => {
  const source = await sparseFile("parts");
  const copy = pathOf("patched");
  await receive(copy, readBlocks(source, 0));
  await using file = await open(source, "r+");
  await file.write(Buffer.alloc(BLOCK_BYTES), 0, BLOCK_BYTES, 2 * BLOCK_BYTES);
  await file.write(Buffer.from("grown"), 0, 5, 41 * BLOCK_BYTES);
  const changed = mergeExtents(
    [{ start: 41 * BLOCK_BYTES, end: 42 * BLOCK_BYTES }],
    [{ start: 2 * BLOCK_BYTES + 5, end: 3 * BLOCK_BYTES }],
  );
  assert.deepEqual(changed, [
    { start: 2 * BLOCK_BYTES, end: 3 * BLOCK_BYTES },
    { start: 41 * BLOCK_BYTES, end: 42 * BLOCK_BYTES },
  ]);
  await using patched = await open(copy, "r+");
  const written = await writeBlocks(patched, readExtents(source, changed), () => undefined);
  assert.deepEqual(await readFile(copy), await readFile(source));
  assert.equal(await writtenHash(copy, written, signal), written.sha256);
  await patched.write(Buffer.from("x"), 0, 1, 2 * BLOCK_BYTES);
  assert.notEqual(await writtenHash(copy, written, signal), written.sha256);
});
