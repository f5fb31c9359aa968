/**
 * The settings of the host that its machines need.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { makeLog } from "../log.ts";
import { makeRoomForNeighbours } from "./host.ts";

const log = makeLog({ level: "silent", clock: systemClock });

test("there is room for the neighbours of all machines, more if the host has more, and none is made in a namespace", async (t) => {
  const settings = await mkdtemp(join(tmpdir(), "flotilla-neighbours-"));
  t.after(() => rm(settings, { recursive: true }));
  await makeRoomForNeighbours(log, settings);
  assert.deepEqual(await readdir(settings), []);
  await writeFile(join(settings, "gc_thresh2"), "512\n");
  await writeFile(join(settings, "gc_thresh3"), "1024\n");
  await makeRoomForNeighbours(log, settings);
  const present = (): Promise<string[]> =>
    Promise.all(["gc_thresh2", "gc_thresh3"].map((name) => readFile(join(settings, name), "utf8")));
  assert.deepEqual(await present(), ["32768\n", "65536\n"]);
  await writeFile(join(settings, "gc_thresh3"), "100000\n");
  await makeRoomForNeighbours(log, settings);
  assert.deepEqual(await present(), ["32768\n", "100000\n"]);
});
