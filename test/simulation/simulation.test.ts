/**
 * The shipped servers and node agents in a simulated cluster, with every fault at any moment (docs/testing.md).
 *
 * FLOTILLA_SEEDS=N plays the first N seeds, FLOTILLA_SEED=N that one. The history of a seed that fails, or was asked for, is in a
 * file that the test names. FLOTILLA_BUGS=all also looks for planted bugs of which no seed is known.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { tableOf, unmetPairs } from "./met.ts";
import { BUGS } from "./planted.ts";
import { Player } from "./play.ts";
import type { Line } from "./worker.ts";

const SEEDS_DEFAULT = 300;
/** More are played until every fault has met every state: which seed meets what changes with the product. */
const SEEDS_MAX = 600;
const SEEDS_AT_A_TIME = 50;
/** Played by two processes, to compare their histories. */
const TWICE = 16;
/** Each bug is looked for first with the seed that found it last, then with these. */
const SEEDS_FOR_BUG_MAX = 300;

const single = process.env["FLOTILLA_SEED"];
const count = Number(process.env["FLOTILLA_SEEDS"] ?? SEEDS_DEFAULT);
const from = (first: number, many: number): number[] => Array.from({ length: many }, (_, at) => first + at);
/** Also those that find planted bugs: without the bug they find nothing. */
const finding = Object.values(BUGS).flatMap(({ seed }) => seed ?? []);
const seeds = single === undefined ? [...new Set([...from(1, count), ...finding])] : [Number(single)];

/** Writes the history of a seed to a file and returns its path. */
function keep({ seed, lines }: Line): string {
  const path = join(tmpdir(), `flotilla-simulation-${seed}.log`);
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

test("a cluster in which everything fails at any moment keeps its promises, and reaches the desired state", async (t) => {
  await using player = await Player.open();
  const met = new Map<string, number>();
  const violated: Line[] = [];
  const prints = new Map<number, string>();
  const play = (some: readonly number[]): Promise<void> =>
    player.play(
      some,
      (line) => {
        if (line.lines.length > 0) t.diagnostic(`the history of seed ${line.seed} is in ${keep(line)}`);
        if (line.violation !== null) violated.push(line);
        prints.set(line.seed, line.fingerprint);
        for (const [key, times] of line.met) met.set(key, (met.get(key) ?? 0) + times);
      },
      single !== undefined,
    );
  const missing = (): readonly string[] => unmetPairs(met);
  await play(seeds);
  if (single === undefined && count >= SEEDS_DEFAULT) {
    for (let next = count + 1; missing().length > 0 && next <= SEEDS_MAX; next += SEEDS_AT_A_TIME)
      await play(from(next, SEEDS_AT_A_TIME).filter((seed) => !prints.has(seed)));
    t.diagnostic(`${prints.size} seeds; how often each fault met each state:\n${tableOf(met).join("\n")}`);
    assert.deepEqual(missing(), [], "every fault meets every state");
  }
  const texts = violated.map(({ violation }) => violation);
  assert.equal(violated.length, 0, `${texts.join("\n")}\nFLOTILLA_SEED=${violated[0]?.seed} repeats it`);
  assert.ok(seeds.every((seed) => prints.has(seed)));
  // In the other order, so that each seed is played by another process and after other seeds.
  const again = seeds.slice(0, TWICE).toReversed();
  await player.play(again, ({ seed, fingerprint }) => {
    assert.equal(fingerprint, prints.get(seed), `seed ${seed} has another history the second time`);
  });
});

const known = Object.entries(BUGS).filter(([, { seed }]) => seed !== null || process.env["FLOTILLA_BUGS"] === "all");

test(`each of ${known.length} planted bugs is found`, { skip: single !== undefined }, async (t) => {
  await using player = await Player.open();
  const missed: string[] = [];
  const queue = [...known];
  const work = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const [bug, { seed }] = next;
      const found = await player.find(bug, [...(seed === null ? [] : [seed]), ...from(1, SEEDS_FOR_BUG_MAX)]);
      if (found === null) missed.push(bug);
      else t.diagnostic(`${bug}: ${found.violation?.split("\n")[0]}`);
      if (found !== null && found.seed !== seed) t.diagnostic(`planted.ts names seed ${seed}, which does not find it`);
    }
  };
  await Promise.all([work(), work()]);
  assert.deepEqual(missed, []);
});
