/**
 * A small disk for a test, which can be filled without filling that of the host. Needs root.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  closeSync,
  fstatSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

/**
 * The directory of a new file system, which is removed after the test. `size`: in the form of tmpfs, such as
 * `320m`.
 */
export function makeDisk(t: TestContext, size: string): string {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-full-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", directory]);
  t.after(() => {
    execFileSync("umount", ["--lazy", directory]);
    rmSync(directory, { recursive: true });
  });
  return directory;
}

/**
 * The same with ext4, as most hosts have it, in a sparse file: what is allocated and not written takes no
 * space of the host's.
 */
export function makeExt4Disk(t: TestContext, bytes: number): string {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-ext4-"));
  const [image, mounted] = [`${directory}.image`, directory];
  writeFileSync(image, "");
  truncateSync(image, bytes);
  execFileSync("mkfs.ext4", ["-q", "-m", "0", image]);
  execFileSync("mount", ["-o", "loop", image, mounted]);
  t.after(() => {
    execFileSync("umount", ["--lazy", mounted]);
    rmSync(directory, { recursive: true });
    rmSync(image);
  });
  return mounted;
}

/** Fills all remaining space, and most of it without writing. */
export function fillDisk(path: string): void {
  const file = openSync(path, "a");
  try {
    const { bavail, bsize } = statfsSync(path);
    const bytes = bavail * bsize - 8 * 1024 ** 2;
    if (bytes > 0) execFileSync("fallocate", ["--offset", `${fstatSync(file).size}`, "--length", `${bytes}`, path]);
    for (const bytes of [1024 ** 2, 4096, 1]) {
      try {
        for (;;) writeSync(file, Buffer.alloc(bytes));
      } catch (error) {
        assert.equal((error as NodeJS.ErrnoException).code, "ENOSPC");
      }
    }
  } finally {
    closeSync(file);
  }
}
