/**
 * When a machine that ended by itself is started again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RESTART_WINDOW_MS, RESTARTS_MAX } from "@flotilla/contract/limits";
import { countedAt, nextRestart } from "./restart-policy.ts";

const NOW = 1_800_000_000_000;

test("the first restart is at once, each further one waits twice as long, and after five there is none", () => {
  const at: number[] = [];
  const pauses: number[] = [];
  for (let now = NOW; ; ) {
    const next = nextRestart(at, now);
    if (next === null) break;
    pauses.push(next - now);
    at.push(next);
    now = next;
  }
  assert.deepEqual(pauses, [0, 1_000, 2_000, 4_000, 8_000]);
  assert.equal(pauses.length, RESTARTS_MAX);
});

test("what was long ago does not count, nor what a clock that was set back has left in the future", () => {
  const many = Array.from({ length: RESTARTS_MAX }, () => NOW);
  assert.equal(nextRestart(many, NOW + RESTART_WINDOW_MS - 1), null);
  assert.equal(nextRestart(many, NOW + RESTART_WINDOW_MS), NOW + RESTART_WINDOW_MS);
  assert.deepEqual(countedAt([NOW * 2], NOW), []);
});

test("time in which its agent did not answer does not count, so a guest that hangs after each boot is left alone", () => {
  const hungMs = RESTART_WINDOW_MS - 1;
  let at: readonly number[] = [];
  let now = NOW;
  for (let count = 0; count < RESTARTS_MAX; count += 1) {
    at = countedAt(at, now, hungMs);
    const next = nextRestart(at, now);
    assert.ok(next !== null, `after ${count} restarts`);
    at = [...at, next];
    now = next + hungMs + 20_000;
  }
  assert.equal(nextRestart(countedAt(at, now, hungMs), now), null);
  assert.notEqual(
    nextRestart(countedAt(at, now + RESTART_WINDOW_MS, hungMs), now + RESTART_WINDOW_MS),
    null,
    "it worked",
  );
});
