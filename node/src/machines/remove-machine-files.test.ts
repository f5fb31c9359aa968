/**
 * In which order a machine's files are removed.
 */
import assert from "node:assert/strict";
import { watch } from "node:fs";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../../test/support/until.ts";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { removeMachineFiles } from "./remove-machine-files.ts";

test("the journal is removed last, so that an agent that dies before continues", async () => {
  await using directory = await temporaryDirectory();
  const machine = join(directory.path, "machine");
  await mkdir(machine);
  const names = [
    "journal.json",
    "disk",
    "memory",
    "memory-base",
    ...Array.from({ length: 20 }, (_, n) => `other-${n}`),
  ];
  for (const name of names) await writeFile(join(machine, name), "");
  const removed: string[] = [];
  using _watcher = Object.assign(
    watch(machine, (_, name) => {
      if (name !== null && names.includes(name)) removed.push(name);
    }),
    {
      [Symbol.dispose](this: ReturnType<typeof watch>) {
        this.close();
      },
    },
  );
  await removeMachineFiles(machine);
  await until(() => removed.length >= names.length, { what: "every removal to be seen" });
  assert.equal(removed.at(-1), "journal.json");
  assert.deepEqual(removed.toSorted(), names.toSorted());
  assert.deepEqual(await readdir(directory.path), []);
});
