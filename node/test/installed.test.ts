/**
 * What an agent asks the program that is installed before it restarts as that one.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { RELEASE } from "@flotilla/contract/release";
import { installedRelease } from "../src/installed.ts";

const MAIN = join(import.meta.dirname, "../src/main.ts");

test("a program that was not set up for the agent's settings is not runnable, and says what to run", async (t) => {
  const empty = await mkdtemp(join(tmpdir(), "flotilla-installed-"));
  t.after(() => rm(empty, { recursive: true, force: true }));
  const flags = ["--cache-dir", empty, "--driver"];
  await assert.rejects(installedRelease(MAIN, [...flags, "qemu"]), /no guest kernel in .*run scripts\/setup/);
  assert.equal(await installedRelease(MAIN, [...flags, "fake"]), RELEASE);
});
