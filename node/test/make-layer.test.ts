/**
 * Layers of packages that are not made to their end.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { DiskRecord } from "../src/images/disk-records.ts";
import { makeLayer } from "../src/packages/make-layer.ts";
import { until } from "../../test/support/until.ts";

/** More looks than a chunk takes to be compressed. */
const LOOKS = 20;

test("a layer whose file takes nothing ends when it is not wanted any more", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-layer-"));
  t.after(() => rm(directory, { recursive: true, force: true }));
  // It has no reader, so it is opened when the test opens it.
  const path = join(directory, "layer");
  execFileSync("mkfifo", [path]);
  let requested = 0;
  const records = async function* (): AsyncGenerator<DiskRecord, void> {
    for (let at = 0; ; at += 1) {
      requested += 1;
      yield { offset: at * 2 ** 20, data: randomBytes(2 ** 20) };
      await Promise.resolve();
    }
  };
  const leaving = new AbortController();
  const making = assert.rejects(makeLayer(records(), path, leaving.signal));
  let [looks, last] = [0, 0];
  await until(() => {
    looks = requested === last && requested > 0 ? looks + 1 : 0;
    last = requested;
    return looks === LOOKS;
  });
  leaving.abort(new Error("it is not wanted any more"));
  await using _reader = await open(path, constants.O_RDWR | constants.O_NONBLOCK);
  await making;
});
