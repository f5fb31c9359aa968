/**
 * Memory fits only the files with which it was saved, or what these became on the node to which it moved.
 */
import assert from "node:assert/strict";
import { copyFile, mkdtemp, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { MemoryWriter } from "../../memory/memory-file.ts";
import { describeMemory, memoryFiles } from "./suspend.ts";

const memoryId = "a".repeat(32);

test("memory is refused when a file is not its own, here and after a move", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-moved-"));
  t.after(() => rm(directory, { recursive: true }));
  const place = { directory, diskPath: join(directory, "disk") };
  const basePath = join(directory, "memory-base");
  await writeFile(place.diskPath, "disk");
  await writeFile(basePath, "base");
  const saved = await memoryFiles(place);
  const parts: Buffer[] = [];
  const writer = new MemoryWriter(async (bytes) => void parts.push(Buffer.from(bytes)));
  await writer.begin({ memoryId, format: "one", cpus: 1, memoryMb: 1, ...saved }, Buffer.alloc(0));
  await writer.end();
  await writeFile(join(directory, "memory"), Buffer.concat(parts));
  const here = { memoryId, moved: null };
  assert.deepEqual(await describeMemory(place, here), { format: "one", hasBase: true });
  await assert.rejects(describeMemory(place, { ...here, memoryId: "b".repeat(32) }), /that of another time/);

  // As copies of another node they have other identities.
  for (const path of [place.diskPath, basePath]) {
    await copyFile(path, `${path}.copy`);
    await rm(path);
    await copyFile(`${path}.copy`, path);
  }
  await assert.rejects(describeMemory(place, here), /the machine's disk has changed/);
  const moved = await memoryFiles(place);
  assert.deepEqual(await describeMemory(place, { memoryId, moved }), { format: "one", hasBase: true });
  await utimes(basePath, 1, 1);
  await assert.rejects(describeMemory(place, { memoryId, moved }), /the template that it depends on is gone/);
  await writeFile(place.diskPath, "another");
  await assert.rejects(describeMemory(place, { memoryId, moved }), /the machine's disk has changed/);
});
