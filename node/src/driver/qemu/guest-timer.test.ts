/**
 * Which guests are used, by how their kernels have measured their timers.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { makeLog } from "../../log.ts";
import { assertTimer, MACHINE_TOLERANCES, TEMPLATE_TOLERANCES, withGoodTimer } from "./guest-timer.ts";

const RIGHT_KHZ = 62_500;
const log = makeLog({ level: "silent", clock: systemClock });

/** Boots guests whose kernels measure these rates, one after the other. */
function booting(rates: readonly (number | null)[], rightKhz: number | null = RIGHT_KHZ) {
  let attempts = 0;
  const attempt = async (tolerance: number): Promise<number> => {
    const timerKhz = rates[attempts++] ?? null;
    assertTimer({ timerKhz }, { rightKhz, tolerance });
    return attempts;
  };
  return { attempt, attempts: () => attempts };
}

test("a guest without a timer is never used, and the last attempt says why", async () => {
  for (const tolerances of [TEMPLATE_TOLERANCES, MACHINE_TOLERANCES]) {
    assert.equal(await withGoodTimer(booting([0, 0, RIGHT_KHZ]).attempt, { tolerances, log }), 3);
    const never = booting([0, 0, 0, 0, 0]);
    await assert.rejects(withGoodTimer(never.attempt, { tolerances, log }), /found no timer/);
    assert.equal(never.attempts(), tolerances.length);
  }
  await assert.rejects(booting([0], null).attempt(Number.POSITIVE_INFINITY), "also where every rate is right");
});

test("a template's timer is measured again where it is wrong, with less demand each time", async () => {
  const tries = (...ratios: number[]) =>
    withGoodTimer(booting(ratios.map((ratio) => ratio * RIGHT_KHZ)).attempt, { tolerances: TEMPLATE_TOLERANCES, log });
  assert.equal(await tries(1.09), 1);
  assert.equal(await tries(0.91), 1);
  assert.equal(await tries(1.15, 1.15), 2);
  assert.equal(await tries(0.5, 3.4, 0.6), 3);
  assert.equal(await tries(3.4, 3.4, 3.4, 3.4), 4);
});

test("a machine that someone waits for takes a rate that a template does not", async () => {
  const tries = (...ratios: number[]) =>
    withGoodTimer(booting(ratios.map((ratio) => ratio * RIGHT_KHZ)).attempt, { tolerances: MACHINE_TOLERANCES, log });
  assert.equal(await tries(1.4), 1);
  assert.equal(await tries(3.4, 3.4), 2);
});

test("an unknown rate is used, and any where none is known to be right", async () => {
  assert.equal(await booting([null]).attempt(0), 1);
  assert.equal(await booting([266_000], null).attempt(0), 1);
});

test("what fails for another reason is not tried again", async () => {
  let attempts = 0;
  const attempt = (): Promise<never> => {
    attempts += 1;
    return Promise.reject(new Error("no disk"));
  };
  await assert.rejects(withGoodTimer(attempt, { tolerances: TEMPLATE_TOLERANCES, log }), /no disk/);
  assert.equal(attempts, 1);
});
