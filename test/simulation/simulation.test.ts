/**
 * The shipped servers and node agents in a simulated cluster, with every fault at any moment (docs/testing.md).
 *
 * FLOTILLA_SEEDS=N plays the first N seeds, FLOTILLA_SEED=N that one. The history of a seed that fails, or was asked for, is in a
 * file that the test names.
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

const SEEDS_DEFAULT = 1_000;
/** With fewer, some faults may have missed some states. */
const SEEDS_FOR_PAIRS = 300;
/** More are played until every fault has met every state: which seed meets what changes with the product. */
const SEEDS_MAX = 1_300;
const SEEDS_AT_A_TIME = 50;
/** Played by two processes, to compare their histories. */
const TWICE = 16;
/** A slow host plays fewer: no seed begins after this time, unless a number was asked for. */
const BEGIN_MS_MAX = 15 * 60_000;

const single = process.env["FLOTILLA_SEED"];
const asked = process.env["FLOTILLA_SEEDS"];
const count = Number(asked ?? SEEDS_DEFAULT);
const from = (first: number, many: number): number[] => Array.from({ length: many }, (_, at) => first + at);
/** Those that find planted bugs: without the bug they find nothing. They are always played. */
const finding = [...new Set(Object.values(BUGS).flatMap(({ seed }) => seed ?? []))];
const seeds = single === undefined ? [...new Set([...finding, ...from(1, count)])] : [Number(single)];

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
  const isLimited = single === undefined && asked === undefined;
  const mayBegin = (): boolean => !isLimited || performance.now() < BEGIN_MS_MAX;
  const play = (some: readonly number[]): Promise<void> =>
    player.play(
      some,
      (line) => {
        if (line.lines.length > 0) t.diagnostic(`the history of seed ${line.seed} is in ${keep(line)}`);
        if (line.violation !== null) violated.push(line);
        prints.set(line.seed, line.fingerprint);
        for (const [key, times] of line.met) met.set(key, (met.get(key) ?? 0) + times);
      },
      {
        isVerbose: single !== undefined,
        beginMsMax: isLimited ? Math.max(0, BEGIN_MS_MAX - performance.now()) : null,
      },
    );
  const missing = (): readonly string[] => unmetPairs(met);
  await play(seeds);
  const played = seeds.filter((seed) => prints.has(seed));
  const others = `${played.length} of ${seeds.length} seeds were played: this host is slow`;
  if (played.length < seeds.length) await t.test("the other seeds", { skip: others }, () => {});
  const texts = violated.map(({ violation }) => violation);
  assert.equal(violated.length, 0, `${texts.join("\n")}\nFLOTILLA_SEED=${violated[0]?.seed} repeats it`);
  assert.ok(played.length >= finding.length || single !== undefined, "the seeds that find bugs are played");
  // In the other order, so that each seed is played by another process and after other seeds.
  const again = seeds.slice(0, TWICE).toReversed();
  await player.play(again, ({ seed, fingerprint }) => {
    assert.equal(fingerprint, prints.get(seed), `seed ${seed} has another history the second time`);
  });
  if (single !== undefined || count < SEEDS_FOR_PAIRS) return;
  let next = count + 1;
  for (; missing().length > 0 && next <= SEEDS_MAX && mayBegin(); next += SEEDS_AT_A_TIME)
    await play(from(next, SEEDS_AT_A_TIME).filter((seed) => !prints.has(seed)));
  t.diagnostic(`${prints.size} seeds; how often each fault met each state:\n${tableOf(met).join("\n")}`);
  assert.equal(violated.length, 0, violated.map(({ violation }) => violation).join("\n"));
  const few = `${prints.size} seeds were played, and ${missing().length} pairs need more: this host is slow`;
  if (missing().length === 0 || next > SEEDS_MAX) assert.deepEqual(missing(), [], "every fault meets every state");
  else await t.test("every fault meets every state", { skip: few }, () => {});
});
