/**
 * Points of a disk: what is known to have changed since them, and that a point of which anything is unknown
 * is forgotten.
 */
import assert from "node:assert/strict";
import { appendFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { BLOCK_BYTES } from "@flotilla/contract/link/blocks";
import type { BootRequest, Vm } from "../driver/driver.ts";
import type { Extent } from "../images/blocks.ts";
import { makeLog } from "../log.ts";
import { DiskChanges, UnknownPoint } from "./disk-changes.ts";

const directory = await mkdtemp(join(tmpdir(), "flotilla-changes-"));
after(() => rm(directory, { recursive: true, force: true }));
const disk = join(directory, "disk");
const boot = {} as BootRequest;
const block = (number: number): Extent => ({ start: number * BLOCK_BYTES, end: (number + 1) * BLOCK_BYTES });

/** A VM that reports these parts, one list for each look. */
function vmThatWrites(...lists: (readonly Extent[] | Error)[]): Vm {
  const take = async (): Promise<readonly Extent[]> => {
    const next = lists.shift() ?? [];
    if (next instanceof Error) throw next;
    return next;
  };
  const watchDisk: Vm["watchDisk"] = () => Promise.resolve({ take, takeLast: take, end: () => Promise.resolve() });
  return { watchDisk } as Vm;
}

async function changes(): Promise<DiskChanges> {
  await writeFile(disk, "content");
  return new DiskChanges(makeLog({ level: "silent", clock: systemClock }));
}

test("a point has what changed since then, also when the other node never got the points after it", async () => {
  const known = await changes();
  const vm = vmThatWrites([block(1)], [block(2)], [block(9)]);
  assert.equal(await known.next(vm, boot, { point: "a", since: null }), null);
  assert.deepEqual(await known.next(vm, boot, { point: "b", since: "a" }), [block(1)]);
  // The stream of b broke off.
  assert.deepEqual(await known.next(vm, boot, { point: "c", since: "a" }), [{ ...block(1), end: block(2).end }]);
  assert.deepEqual(await known.points(disk), [], "it still runs");
  await known.finish(vm, disk);
  assert.deepEqual(await known.points(disk), ["a", "c"]);
  assert.deepEqual(await known.since("c", disk), [block(9)]);
  await assert.rejects(known.since("b", disk), UnknownPoint);
});

test("no point survives what could not be followed: another VM, a lost look, or a file that changed later", async () => {
  const known = await changes();
  await known.next(vmThatWrites(), boot, { point: "a", since: null });
  await assert.rejects(known.next(vmThatWrites(), boot, { point: "b", since: "a" }), UnknownPoint);
  const failing = vmThatWrites(new Error("lost"));
  await known.next(failing, boot, { point: "a", since: null });
  await assert.rejects(known.next(failing, boot, { point: "b", since: "a" }), /lost/);
  await assert.rejects(known.next(failing, boot, { point: "b", since: "a" }), UnknownPoint);
  const ended = vmThatWrites(new Error("its process has gone"));
  await known.next(ended, boot, { point: "a", since: null });
  await known.finish(ended, disk);
  assert.deepEqual(await known.points(disk), []);
  const vm = vmThatWrites();
  await known.next(vm, boot, { point: "a", since: null });
  await known.finish(vm, disk);
  assert.deepEqual(await known.points(disk), ["a"]);
  await appendFile(disk, "more");
  assert.deepEqual(await known.points(disk), []);
});
