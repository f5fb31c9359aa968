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
import { BUGS } from "./planted.ts";
import { Player } from "./play.ts";
import { FAULTS } from "./simulate.ts";
import type { Line } from "./worker.ts";

const SEEDS_DEFAULT = 200;
/** Played by two processes, to compare their histories. */
const TWICE = 16;
const SEEDS_FOR_BUG_MAX = 1_000;
/** Those that are looked for in each run, with a seed that found them last. The others are looked for on demand. */
const BUGS_DEFAULT: Readonly<Record<string, number>> = {
  "a drain is begun in two writes": 26,
  "the end of a run is not recorded": 1,
};

const single = process.env["FLOTILLA_SEED"];
const count = Number(process.env["FLOTILLA_SEEDS"] ?? SEEDS_DEFAULT);
const seeds = single === undefined ? Array.from({ length: count }, (_, at) => at + 1) : [Number(single)];

/** Writes the history of a seed to a file and returns its path. */
function keep({ seed, lines }: Line): string {
  const path = join(tmpdir(), `flotilla-simulation-${seed}.log`);
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

/** Every fault must meet machines in these phases. */
const PHASES = ["created", "stopped", "starting", "running", "stopping", "failed", "deleting", "deleted"];

test("a cluster in which everything fails at any moment keeps its promises, and reaches the desired state", async (t) => {
  await using player = await Player.open();
  const met = new Map<string, number>();
  const violated: Line[] = [];
  const prints = new Map<number, string>();
  await player.play(
    seeds,
    (line) => {
      if (line.lines.length > 0) t.diagnostic(`the history of seed ${line.seed} is in ${keep(line)}`);
      if (line.violation !== null) violated.push(line);
      prints.set(line.seed, line.fingerprint);
      for (const [key, times] of line.met) met.set(key, (met.get(key) ?? 0) + times);
    },
    single !== undefined,
  );
  const texts = violated.map(({ violation }) => violation);
  assert.equal(violated.length, 0, `${texts.join("\n")}\nFLOTILLA_SEED=${violated[0]?.seed} repeats it`);
  assert.equal(prints.size, seeds.length);
  if (single === undefined && count >= SEEDS_DEFAULT) {
    const missing = FAULTS.flatMap((fault) => PHASES.map((phase) => `${fault}/${phase}`)).filter(
      (key) => !met.has(key),
    );
    assert.deepEqual(missing, [], "every fault meets every phase");
  }
  // In the other order, so that each seed is played by another process and after other seeds.
  const again = seeds.slice(0, TWICE).toReversed();
  await player.play(again, ({ seed, fingerprint }) => {
    assert.equal(fingerprint, prints.get(seed), `seed ${seed} has another history the second time`);
  });
});

const wanted = process.env["FLOTILLA_BUGS"] === "all" ? Object.keys(BUGS) : Object.keys(BUGS_DEFAULT);

test(`planted bugs are found: ${wanted.join(", ")}`, { skip: single !== undefined }, async (t) => {
  await using player = await Player.open();
  const others = Array.from({ length: SEEDS_FOR_BUG_MAX }, (_, at) => at + 1);
  const missed: string[] = [];
  const queue = [...wanted];
  const work = async (): Promise<void> => {
    for (let bug = queue.shift(); bug !== undefined; bug = queue.shift()) {
      const first = BUGS_DEFAULT[bug];
      const found = await player.find(bug, first === undefined ? others : [first, ...others]);
      if (found === null) missed.push(bug);
      else t.diagnostic(`${bug}: ${found.violation?.split("\n")[0]}`);
    }
  };
  await Promise.all([work(), work()]);
  assert.deepEqual(missed, []);
});
