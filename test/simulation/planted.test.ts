/**
 * Bugs that are planted in the shipped source are found by the simulation (docs/testing.md).
 *
 * FLOTILLA_BUGS=all also looks for those of which no seed is known.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { BUGS } from "./planted.ts";
import { Player } from "./play.ts";

/** Each bug is looked for first with the seed that found it last, then with these. */
const SEEDS_FOR_BUG_MAX = 300;
/** A slow host looks for fewer: for no bug after this time, unless all were asked for. */
const BEGIN_MS_MAX = 15 * 60_000;

const isAll = process.env["FLOTILLA_BUGS"] === "all";
const known = Object.entries(BUGS).filter(([, { seed }]) => seed !== null || isAll);

test(`each of ${known.length} planted bugs is found`, async (t) => {
  await using player = await Player.open();
  const missed: string[] = [];
  const queue = [...known];
  const mayBegin = (): boolean => isAll || performance.now() < BEGIN_MS_MAX;
  const work = async (): Promise<void> => {
    while (mayBegin()) {
      const next = queue.shift();
      if (next === undefined) return;
      const [bug, { seed }] = next;
      const others = Array.from({ length: SEEDS_FOR_BUG_MAX }, (_, at) => at + 1);
      const found = await player.find(bug, [...(seed === null ? [] : [seed]), ...others]);
      if (found === null) missed.push(bug);
      else t.diagnostic(`${bug}: ${found.violation?.split("\n")[0]}`);
      if (found !== null && found.seed !== seed)
        t.diagnostic(`${bug}: planted.ts names seed ${seed}, and seed ${found.seed} finds it`);
    }
  };
  await Promise.all([work(), work()]);
  const others = queue.map(([bug]) => bug).join("; ");
  if (others !== "") await t.test("the other bugs", { skip: `this host is slow: ${others}` }, () => {});
  assert.deepEqual(missed, []);
});
