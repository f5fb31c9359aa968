/**
 * Bugs that are planted in the shipped source are found by the simulation (docs/testing.md).
 *
 * Five in each run, by chance, of those that a few seeds find; the output names them, and
 * FLOTILLA_BUGS=name;name looks for these. FLOTILLA_BUGS=all looks for all, and writes the seeds that find
 * them to planted-seeds.json.
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { BUGS } from "./planted.ts";
import { Player } from "./play.ts";

/** A bug is looked for first with the seed that found it last, then with these. */
const SEEDS_FOR_BUG_MAX = 300;
const BUGS_PER_RUN = 5;
/**
 * The highest seed that found a bug of every run: so hardly any change of the product hides it from 300
 * seeds.
 */
const SEED_OF_EVERY_RUN_MAX = 30;

/**
 * The seed that found each bug last: it means something else when the simulation or the product changes.
 * null: none is known.
 */
const SEEDS_FILE = new URL("planted-seeds.json", import.meta.url);
const seeds = JSON.parse(readFileSync(SEEDS_FILE, "utf8")) as Record<string, number | null>;

const asked = process.env["FLOTILLA_BUGS"];
const isAll = asked === "all";

function chosen(): readonly string[] {
  if (isAll) return Object.keys(BUGS);
  if (asked !== undefined) return asked.split(";");
  const often = Object.keys(BUGS).filter((bug) => (seeds[bug] ?? SEEDS_FOR_BUG_MAX) <= SEED_OF_EVERY_RUN_MAX);
  return Array.from({ length: BUGS_PER_RUN }, () => often.splice(randomInt(often.length), 1)).flat();
}

test("each planted bug is found, by a seed that finds nothing without it", async () => {
  await using player = await Player.open();
  const missed: string[] = [];
  const found = new Map<string, number>();
  const queue = [...chosen()];
  process.stdout.write(`FLOTILLA_BUGS='${queue.join(";")}' looks for the same bugs\n`);
  const work = async (): Promise<void> => {
    for (let bug = queue.shift(); bug !== undefined; bug = queue.shift()) {
      const others = Array.from({ length: SEEDS_FOR_BUG_MAX }, (_, at) => at + 1);
      const line = await player.find(bug, [seeds[bug] ?? [], others].flat());
      // Bugs without a known seed were never found by so many seeds.
      if (line === null && seeds[bug] !== null) missed.push(bug);
      if (line === null) continue;
      process.stdout.write(`${bug}: seed ${line.seed}: ${line.violation?.split("\n")[0]}\n`);
      found.set(bug, line.seed);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
  if (isAll) {
    const renewed = Object.keys(BUGS).map((bug) => [bug, found.get(bug) ?? seeds[bug] ?? null]);
    writeFileSync(SEEDS_FILE, `${JSON.stringify(Object.fromEntries(renewed), null, 2)}\n`);
  }
  assert.deepEqual(missed, []);
  await player.play([...new Set(found.values())], ({ seed, violation }) => {
    assert.equal(violation, null, `seed ${seed} without a planted bug`);
  });
});
