/**
 * Reading pressure stall information of the host's kernel.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readPressure, waitsIn } from "./pressure.ts";

const memory =
  "some avg10=7.28 avg60=75.41 avg300=70.30 total=563812196\nfull avg10=0.00 avg60=3.05 avg300=0.10 total=12\n";
const oldCpu = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n";

test("the mean of the last minute is read, also of a kernel without `full` for processors", () => {
  assert.deepEqual(waitsIn(memory), { some: 75.41, full: 3.05 });
  assert.deepEqual(waitsIn(oldCpu), { some: 2, full: 0 });
  for (const text of ["", "some avg10=1.00", "full avg10=0.00 avg60=3.05", "some avg60=many"])
    assert.equal(waitsIn(text), null, text);
});

test("a kernel that measures nothing, or not everything, makes no claim", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-pressure-"));
  t.after(() => rm(directory, { recursive: true }));
  assert.equal(await readPressure(join(directory, "missing")), null);
  await writeFile(join(directory, "cpu"), oldCpu);
  await writeFile(join(directory, "io"), memory);
  assert.equal(await readPressure(directory), null);
  await writeFile(join(directory, "memory"), memory);
  const waits = { some: 75.41, full: 3.05 };
  assert.deepEqual(await readPressure(directory), { cpu: { some: 2, full: 0 }, memory: waits, io: waits });
});
