/**
 * The modules of a guest's kernel, and their load order.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { readModules } from "./kernel-modules.ts";

/** A directory of modules with the given dependencies in their .modinfo. */
function directoryOf(t: TestContext, modules: Readonly<Record<string, string>>, builtIn: readonly string[]): string {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-modules-"));
  t.after(() => rmSync(directory, { recursive: true }));
  mkdirSync(join(directory, "kernel/drivers"), { recursive: true });
  for (const [name, depends] of Object.entries(modules)) {
    writeFileSync(join(directory, "kernel/drivers", `${name}.ko`), `license=GPL\0depends=${depends}\0`);
  }
  writeFileSync(join(directory, "modules.builtin"), builtIn.map((name) => `kernel/drivers/${name}.ko\n`).join(""));
  return directory;
}

describe("modules of a guest's kernel", () => {
  it("are returned with their dependencies, in load order", async (t) => {
    const directory = directoryOf(t, { "virtio-net": "net_failover", net_failover: "failover", failover: "" }, []);
    const modules = await readModules(directory, ["virtio_net", "failover"]);
    assert.deepEqual([...modules.keys()], ["failover", "net_failover", "virtio_net"]);
  });

  it("that are built in need no file, whether requested or as a dependency", async (t) => {
    const directory = directoryOf(t, { virtio_blk: "virtio_ring" }, ["char/virtio_console", "virtio-ring"]);
    const modules = await readModules(directory, ["virtio_console", "virtio_blk"]);
    assert.deepEqual([...modules.keys()], ["virtio_blk"]);
  });

  it("that are neither present nor built in give an error with their name", async (t) => {
    const directory = directoryOf(t, { virtio_blk: "" }, []);
    await assert.rejects(readModules(directory, ["virtio_mmio"]), /the guest kernel has no module virtio_mmio in /);
  });
});
