/**
 * Thousands of random histories of tenants, on the server's triggers, constraints and statements: every sum and every
 * invoice line is what the history makes, to the micro.
 *
 * FLOTILLA_TEST_HISTORIES is how many, FLOTILLA_SEED repeats a failed run.
 */
import { randomBytes, randomInt } from "node:crypto";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { openDatabase } from "../src/db/postgres.ts";
import { createLog } from "../src/log.ts";
import { randomIds } from "../src/ids.ts";
import { HistoryBatch } from "./support/history-batch.ts";
import { assertSound } from "./support/sound.ts";
import { freshDatabase } from "./support/server.ts";

const BATCH = 1000;
const SIDES = 2;
const HISTORIES = Number(process.env["FLOTILLA_TEST_HISTORIES"] ?? 2000);
const SEED = Number(process.env["FLOTILLA_SEED"] ?? randomInt(2 ** 31));

/** The generator mulberry32. */
function randomFrom(seed: number): (max: number) => number {
  let state = seed;
  return (max) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return max <= 0 ? 0 : Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * max);
  };
}

async function playBatch(tenants: number, seed: number): Promise<void> {
  const log = createLog("error");
  const db = openDatabase({ connection: { connectionString: await freshDatabase() }, clock: systemClock, log });
  try {
    const context = { db, clock: systemClock, log, ids: randomIds(randomBytes), randomBytes };
    await new HistoryBatch(context, tenants, randomFrom(seed)).play();
    await assertSound(db);
  } catch (error) {
    throw new Error(`FLOTILLA_SEED=${seed} FLOTILLA_TEST_HISTORIES=${tenants} repeats it`, { cause: error });
  } finally {
    await db.close();
  }
}

test("after thousands of random histories every invoice and every sum is what its history says, to the micro", async (t) => {
  const sizes: number[] = [];
  for (let left = HISTORIES; left > 0; left -= BATCH) sizes.push(Math.min(BATCH, left));
  const started = performance.now();
  const batches = sizes.entries();
  const side = async (): Promise<void> => {
    for (const [at, size] of batches) await playBatch(size, SEED + at);
  };
  await Promise.all(Array.from({ length: SIDES }, side));
  t.diagnostic(`${HISTORIES} histories in ${Math.round(performance.now() - started)} ms from seed ${SEED}`);
});
