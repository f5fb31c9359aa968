/**
 * A small disk for a test, which can be filled without filling that of the host. Needs root.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
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
