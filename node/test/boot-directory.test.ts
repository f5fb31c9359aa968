/**
 * When a machine's boot gets its directory.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { makeLog } from "../src/log.ts";
import { FakeDriver } from "../src/driver/fake/index.ts";
import { bootRequest, bootVm, makeBootId } from "../src/machines/boot-vm.ts";
import { specOf } from "./support/in-process.ts";

test("a boot has no directory before the journal that names it is on the disk", async () => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-boot-"));
  const log = makeLog({ level: "error", clock: systemClock, write: () => undefined });
  const driver = new FakeDriver({ machinesDirectory: directory, environmentOf: () => ({}), clock: systemClock, log });
  const { signal } = new AbortController();
  const spec = specOf("mach-1");
  const request = bootRequest({
    spec,
    directory: join(directory, "mach-1"),
    bootId: makeBootId(),
    root: null,
    layerPaths: [],
    uid: 0,
  });
  const saved = Promise.reject(new Error("ENOSPC"));
  await assert.rejects(bootVm(request, { driver, log, prepared: undefined, saved, signal }), /ENOSPC/);
  assert.deepEqual(await readdir(directory), []);
  const vm = await bootVm(request, { driver, log, prepared: undefined, saved: Promise.resolve(), signal });
  assert.deepEqual(await readdir(directory), ["mach-1"]);
  await vm.kill();
  await rm(directory, { recursive: true, force: true });
});
