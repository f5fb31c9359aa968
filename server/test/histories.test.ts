/**
 * Thousands of random histories of tenants, on the server's triggers, constraints and statements: every sum
 * and every invoice line is what the history makes, to the micro.
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

const BATCH = 500;
/** Batches at the same time, each in its own database: enough for two processors. */
const SIDES = 4;
/**
 * In one database: its index against overlaps is slower the more it holds, and to make one costs as much as a
 * hundred histories.
 */
const BATCHES_PER_DATABASE = 10;
const HISTORIES = Number(process.env["FLOTILLA_TEST_HISTORIES"] ?? 10_000);
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

interface Batch {
  readonly at: number;
  readonly tenants: number;
}

/** What is still to be played; each is taken by one side. */
const waiting: Batch[] = [];
for (let left = HISTORIES; left > 0; left -= BATCH)
  waiting.push({ at: waiting.length, tenants: Math.min(BATCH, left) });

async function playInOneDatabase(): Promise<void> {
  const log = createLog("error");
  const db = openDatabase({ connection: { connectionString: await freshDatabase() }, clock: systemClock, log });
  const context = { db, clock: systemClock, log, ids: randomIds(randomBytes), randomBytes };
  try {
    for (let count = 0; count < BATCHES_PER_DATABASE; count += 1) {
      const batch = waiting.shift();
      if (batch === undefined) break;
      const { at, tenants } = batch;
      const seed = SEED + at;
      try {
        await new HistoryBatch(context, { name: String(at), tenants, draw: randomFrom(seed) }).play();
      } catch (error) {
        throw new Error(`FLOTILLA_SEED=${seed} FLOTILLA_TEST_HISTORIES=${tenants} repeats it`, { cause: error });
      }
    }
    await assertSound(db);
  } finally {
    await db.close();
  }
}

async function playSide(): Promise<void> {
  while (waiting.length > 0) await playInOneDatabase();
}

test(`after ${HISTORIES} random histories every invoice and every sum is what its history says, to the micro`, async (t) => {
  const started = performance.now();
  await Promise.all(Array.from({ length: SIDES }, playSide));
  t.diagnostic(`${HISTORIES} histories in ${Math.round(performance.now() - started)} ms from seed ${SEED}`);
});
