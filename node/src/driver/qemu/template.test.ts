/**
 * Templates on the disk, without a VM: cleanup at start, and the space they need.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Launcher } from "./launcher.ts";
import { Templates, templateSpaceMb } from "./template.ts";

test("templates of another version and incomplete ones are removed at the start", async () => {
  const nodeDirectory = mkdtempSync(join(tmpdir(), "flotilla-templates-"));
  try {
    const templates = (ingredients: string): Templates =>
      new Templates({ launcher: { nodeDirectory } as Launcher, ingredients });
    const [earlier, now] = [templates("QEMU 1"), templates("QEMU 2")];
    for (const made of [earlier, now]) {
      mkdirSync(made.pathOf({ cpus: 1, memoryMb: 512 }), { recursive: true });
      mkdirSync(`${made.pathOf({ cpus: 4, memoryMb: 512 })}.new`, { recursive: true });
    }
    await now.open();
    assert.deepEqual(
      readdirSync(now.directory).map((name) => join(now.directory, name)),
      [now.pathOf({ cpus: 1, memoryMb: 512 })],
    );
  } finally {
    rmSync(nodeDirectory, { recursive: true });
  }
});

test("a template needs as much disk space as a guest of its size touches, and fits on a small disk", () => {
  assert.ok(templateSpaceMb({ memoryMb: 8192 }) < 1_000);
  assert.ok(templateSpaceMb({ memoryMb: 8192 }) > 8192 * 0.04);
  assert.ok(templateSpaceMb({ memoryMb: 65_536 }) > 65_536 * 0.04);
});
