/**
 * When the part of a bulk disk that a file transfer has used is free for the next one.
 */
import assert from "node:assert/strict";
import type { FileHandle } from "node:fs/promises";
import { test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import { BulkDisk } from "../src/guest/bulk-disk.ts";
import { overBulkDisk } from "../src/guest/bulk-file.ts";
import { scriptedExec } from "./support/scripted-exec.ts";

const WINDOWS = 4;

/** A file on a disk that is slow to write. */
function slowFile() {
  const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const writev = async (parts: readonly Buffer[]) => {
    begun.resolve();
    await gate.promise;
    return { bytesWritten: parts.reduce((sum, { byteLength }) => sum + byteLength, 0) };
  };
  const handle = { writev, truncate: () => Promise.resolve() } as Partial<FileHandle> as FileHandle;
  return { handle, begun: begun.promise, write: () => gate.resolve() };
}

test("a transfer that its guest ends while the host still writes keeps its part of the disk until that is over", async () => {
  const { handle, begun, write } = slowFile();
  const disk = new BulkDisk(handle, "vdb");
  const window = disk.claim();
  assert.ok(window !== null);
  const { exec, exiting, stdout } = scriptedExec();
  const transfer = overBulkDisk(exec, window, true);
  transfer.stdin.write(Buffer.alloc(512 * 1024));
  await begun;
  stdout.resume().end();
  exiting.resolve({ exitCode: 1 });
  assert.deepEqual(await transfer.exit, { exitCode: 1 });
  await endOfTurn();
  const claimed = Array.from({ length: WINDOWS }, () => disk.claim());
  assert.equal(claimed.filter((each) => each !== null).length, WINDOWS - 1);
  write();
  await endOfTurn();
  assert.notEqual(disk.claim(), null);
});
