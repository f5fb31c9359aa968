/**
 * `npm test` after set-up, and `npm run check`: runs the static checks and the layers of tests, then prints
 * the slowest tests, the skipped ones and why, the unstable and the failed ones, and as its last line
 * `N passed, N failed`.
 *
 *     node scripts/test.ts                    static checks and every layer except on-demand ones
 *     node scripts/test.ts check              static checks and the pure layer: under a minute
 *     node scripts/test.ts vm crash           these layers only
 *     node scripts/test.ts test/vm/a.test.ts  this file only, with the limits of its layer
 *     node scripts/test.ts night              what every run plays a part of, in full: hours
 *     node scripts/test.ts record [...]       the same, and writes how long files took to testing/durations.json
 *     node scripts/test.ts --list             the layers and their files
 *
 * Ends with 0 only when nothing failed and at least one test ran.
 */
import path from "node:path";
import { recordDurations } from "./testing/durations.ts";
import { type Layer, LAYERS, STAGES, testFilesByLayer } from "./testing/layers.ts";
import { NIGHT } from "./testing/night.ts";
import { type Played, playAgain } from "./testing/play-again.ts";
import { type Outcome, print, runStage, seconds, uptimeMs } from "./testing/run-stage.ts";
import { runStaticChecks } from "./testing/static-checks.ts";

const SLOWEST_SHOWN = 10;
const SLOW_MS = 500;

const root = path.resolve(import.meta.dirname, "..");
const given = process.argv.slice(2);
const isRecorded = given[0] === "record";
const isNight = given[0] === "night";
const wanted = isNight ? Object.keys(NIGHT) : isRecorded ? given.slice(1) : given;
if (wanted.includes("--list")) list();
else process.exitCode = await main();

async function main(): Promise<number> {
  const files = chosenFiles();
  if (files === null) return 2;
  const outcomes: Outcome[] = [];
  if (wanted.length === 0 || wanted.includes("check")) {
    print("checks");
    outcomes.push(await runStaticChecks(root));
  }
  for (const stage of STAGES) {
    const chosen = new Map<Layer, readonly string[]>();
    for (const name of stage) {
      const some = files.get(name) ?? [];
      if (some.length === 0) continue;
      const layer = layerOf(name);
      chosen.set(layer, some);
      print(`${name}: ${layer.holds}`);
    }
    outcomes.push(...(await runStage(root, chosen, { isNight })));
  }
  if (isRecorded) recordDurations(new Map(outcomes.flatMap(({ files: passed }) => [...passed])));
  return close(wanted.length === 0 ? await playAgain(root, outcomes) : { outcomes, unstable: [] });
}

/** The files to run, by layer; null when an argument matches nothing. */
function chosenFiles(): ReadonlyMap<string, readonly string[]> | null {
  const all = testFilesByLayer(root);
  if (wanted.length === 0) return new Map([...all].filter(([name]) => !isOnDemand(name)));
  const chosen = new Map<string, readonly string[]>();
  for (const word of wanted) {
    const layer = word === "check" ? "pure" : word;
    const named = [...all].flatMap(([name, files]) =>
      files.filter((file) => name === layer || file === path.normalize(word)).map((file) => ({ name, file })),
    );
    if (named.length === 0) {
      print(`no layer and no test file is called "${word}": see npm test -- --list`);
      return null;
    }
    for (const { name, file } of named) chosen.set(name, [...(chosen.get(name) ?? []), file]);
  }
  return chosen;
}

function layerOf(name: string): Layer {
  const layer = LAYERS.find((each) => each.name === name);
  if (layer === undefined) throw new Error(`no layer is called ${name}`);
  return layer;
}

function isOnDemand(name: string): boolean {
  return layerOf(name).isOnDemand === true;
}

function close({ outcomes, unstable }: Played): number {
  const passed = outcomes.reduce((sum, outcome) => sum + outcome.passed, 0);
  const failed = outcomes.reduce((sum, outcome) => sum + outcome.failed, 0);
  const slowest = outcomes
    .flatMap((outcome) => outcome.durations)
    .filter(({ ms }) => ms >= SLOW_MS)
    .toSorted((one, other) => other.ms - one.ms)
    .slice(0, SLOWEST_SHOWN);
  if (slowest.length > 0) print("slowest tests");
  for (const { name, ms } of slowest) print(`  ${seconds(ms).padStart(8)}  ${name}`);
  const skipped = outcomes.flatMap((outcome) => outcome.skipped);
  if (skipped.length > 0) print(`skipped ${skipped.length}`);
  for (const reason of skipped) print(`  ${reason}`);
  if (wanted.length === 0) print(`not run: ${STAGES.flat().filter(isOnDemand).join(", ")} (npm test -- <layer>)`);
  if (unstable.length > 0) print("unstable: failed beside others and passed alone (details above); fix them");
  for (const failure of unstable) print(`  ${failure}`);
  const failures = outcomes.flatMap((outcome) => outcome.failures);
  if (failures.length > 0) print("failed (details above)");
  for (const failure of failures) print(`  ${failure}`);
  print(`all of it took ${seconds(uptimeMs())}`);
  print(`${passed} passed, ${failed} failed`);
  return failed === 0 && passed > 0 ? 0 : 1;
}

function list(): void {
  const all = testFilesByLayer(root);
  for (const name of STAGES.flat()) {
    print(`${name}: ${layerOf(name).holds}`);
    for (const file of all.get(name) ?? []) print(`  ${file}`);
  }
}
