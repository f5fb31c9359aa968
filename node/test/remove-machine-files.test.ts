/**
 * The removal of a machine's files, and what a failed one leaves.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

/** Removes the directory of its first argument, with every descriptor that the process may have in use. */
const WITHOUT_DESCRIPTORS = `
  import { openSync } from "node:fs";
  import { removeMachineFiles } from "${new URL("../src/machines/remove-machine-files.ts", import.meta.url).href}";
  try { for (;;) openSync("/dev/null"); } catch {}
  process.stdout.write(await removeMachineFiles(process.argv[1]).then(() => "removed", ({ code }) => code));`;

test("a removal that cannot read the directory leaves the journal, which the next agent needs to continue it", async (t) => {
  const place = await mkdtemp(join(tmpdir(), "flotilla-remove-"));
  t.after(() => rm(place, { recursive: true }));
  const directory = join(place, "machine");
  await mkdir(directory);
  for (const name of ["disk", "journal.json"]) await writeFile(join(directory, name), "");
  const argv = ["-c", 'ulimit -n 64; exec "$@"', "sh", process.execPath];
  const { stdout } = await promisify(execFile)("sh", [
    ...argv,
    "--input-type=module",
    "-e",
    WITHOUT_DESCRIPTORS,
    directory,
  ]);
  assert.equal(stdout, "EMFILE");
  assert.deepEqual(await readdir(directory), ["disk", "journal.json"]);
});
