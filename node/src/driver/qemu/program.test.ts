/**
 * The identity of a VMM's program: its content, whatever happens to its files otherwise.
 */
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { JAIL_NAME, VMM_LIBRARY_NAME } from "./guest-files.ts";
import { InstalledProgram } from "./program.ts";

const directory = mkdtempSync(join(tmpdir(), "flotilla-program-"));
after(() => rmSync(directory, { recursive: true }));

const program = join(directory, "vmm");
for (const name of [JAIL_NAME, VMM_LIBRARY_NAME]) writeFileSync(join(directory, name), name);
const guestFiles = { directory, kernelVersion: "", key: "" };
const read = (): Promise<InstalledProgram> =>
  InstalledProgram.read({ program, files: [program], directories: [], links: [] }, guestFiles);

test("the same content installed again is the same program, and one more byte is another", async () => {
  writeFileSync(program, "qemu");
  const first = await read();
  copyFileSync(program, `${program}.new`);
  renameSync(`${program}.new`, program);
  utimesSync(program, new Date(), new Date(0));
  assert.equal((await read()).hash, first.hash);
  writeFileSync(program, "qemu ");
  assert.notEqual((await read()).hash, first.hash);
});

test("our own launcher is part of the program", async () => {
  const first = (await read()).hash;
  writeFileSync(join(directory, JAIL_NAME), "another");
  assert.notEqual((await read()).hash, first);
});
