/**
 * The shipped servers and node agents in a simulated cluster, with every fault at any moment
 * (docs/testing.md).
 *
 * Seeds that every run plays, and fresh ones from a random one that the output names. FLOTILLA_SEEDS=N plays
 * N seeds instead of the former, FLOTILLA_SEED=N that one alone. The history of a seed that fails, or was
 * asked for, is in a file that the test names. As many seeds as a night plays must show each fault in each
 * state.
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { tableOf, unmetPairs } from "./met.ts";
import { Player } from "./play.ts";
import type { Line } from "./worker.ts";

const SEEDS = 120;
const SEEDS_FRESH = 60;
const FRESH_FROM = 1_000_000;
/** With fewer, some faults may have missed some states. */
const SEEDS_FOR_PAIRS = 2_000;
/** Played by two processes, to compare their histories. */
const TWICE = 8;
/** No fresh seed begins after this time. */
const BEGIN_MS_MAX = 15 * 60_000;

const single = process.env["FLOTILLA_SEED"];
const asked = process.env["FLOTILLA_SEEDS"];
const count = Number(asked ?? SEEDS);
const from = (first: number, many: number): number[] => Array.from({ length: many }, (_, at) => first + at);
const seeds = single === undefined ? from(1, count) : [Number(single)];

/** Writes the history of a seed to a file and returns its path. */
function keep({ seed, lines }: Line): string {
  const path = join(tmpdir(), `flotilla-simulation-${seed}.log`);
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

test("a cluster in which everything fails at any moment keeps its promises, and reaches the desired state", async (t) => {
  await using player = await Player.open();
  const met = new Map<string, number>();
  const prints = new Map<number, string>();
  const play = async (some: readonly number[], beginMsMax: number | null = null): Promise<void> => {
    const violated: Line[] = [];
    const onLine = (line: Line): void => {
      if (line.lines.length > 0) t.diagnostic(`the history of seed ${line.seed} is in ${keep(line)}`);
      if (line.violation !== null) violated.push(line);
      prints.set(line.seed, line.fingerprint);
      for (const [key, times] of line.met) met.set(key, (met.get(key) ?? 0) + times);
    };
    await player.play(some, onLine, { isVerbose: single !== undefined, beginMsMax });
    const texts = violated.map(({ violation }) => violation);
    assert.equal(violated.length, 0, `${texts.join("\n")}\nFLOTILLA_SEED=${violated[0]?.seed} repeats it`);
  };
  await play(seeds);
  // In the other order, so that each seed is played by another process and after other seeds.
  const again = seeds.slice(0, TWICE).toReversed();
  await player.play(again, ({ seed, fingerprint }) => {
    assert.equal(fingerprint, prints.get(seed), `seed ${seed} has another history the second time`);
  });
  if (single !== undefined || count < SEEDS) return;
  const leftMs = (): number => Math.max(0, BEGIN_MS_MAX - performance.now());
  const fresh = from(randomInt(FRESH_FROM, 2 ** 31), SEEDS_FRESH);
  await play(fresh, leftMs());
  const others = fresh.filter((seed) => !prints.has(seed)).length;
  process.stdout.write(`${count} seeds from 1, ${SEEDS_FRESH - others} from ${fresh[0]}\n`);
  if (others > 0) await t.test("the other fresh seeds", { skip: `this host is too slow for ${others}` }, () => {});
  if (count < SEEDS_FOR_PAIRS) return;
  t.diagnostic(`how often each fault met each state:\n${tableOf(met).join("\n")}`);
  assert.deepEqual(unmetPairs(met), [], "every fault meets every state");
});
