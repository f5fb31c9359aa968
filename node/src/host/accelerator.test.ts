/**
 * How long the result of a trial with KVM is remembered. Needs a /dev/kvm that can be opened, but no guest.
 */
import assert from "node:assert/strict";
import { accessSync, constants } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { chooseAccelerator } from "./accelerator.ts";

const skip = hasKvm() ? false : "no /dev/kvm that can be opened";
const HOUR_MS = 3_600_000;
const START = Date.UTC(2031, 0, 1);

function hasKvm(): boolean {
  try {
    accessSync("/dev/kvm", constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** The choices at these times, and how often the probe ran. */
async function choose(outcome: "answered" | "silent" | Error, times: readonly number[]) {
  const cacheDirectory = await mkdtemp(join(tmpdir(), "flotilla-accelerator-"));
  let tries = 0;
  const probe = async (): Promise<"answered" | "silent"> => {
    tries += 1;
    if (outcome instanceof Error) throw outcome;
    return Promise.resolve(outcome);
  };
  try {
    const chosen = [];
    for (const now of times) {
      chosen.push(await chooseAccelerator({ setting: "auto", cacheDirectory, versions: "some", probe, now }));
    }
    return { chosen, tries };
  } finally {
    await rm(cacheDirectory, { recursive: true });
  }
}

test("a guest that did not answer in time is tried again after an hour", { skip }, async () => {
  const { chosen, tries } = await choose("silent", [START, START + HOUR_MS - 1, START + HOUR_MS]);
  assert.equal(tries, 2);
  assert.deepEqual(
    chosen.map(({ accelerator }) => accelerator),
    ["tcg", "tcg", "tcg"],
  );
  assert.match(chosen[1]?.reason ?? "", /did not answer in time/);
});

test("KVM is tried again when the clock was set back", { skip }, async () => {
  assert.equal((await choose("silent", [START, START - HOUR_MS])).tries, 2);
});

test("a VMM that fails with KVM, and a guest that boots, are remembered", { skip }, async () => {
  const later = [START, START + 1000 * HOUR_MS];
  const failed = await choose(new Error("the VMM was ended by SIGABRT"), later);
  assert.equal(failed.tries, 1);
  assert.match(failed.chosen[1]?.reason ?? "", /SIGABRT/);
  const booted = await choose("answered", later);
  assert.deepEqual([booted.tries, booted.chosen[1]?.accelerator], [1, "kvm"]);
});
