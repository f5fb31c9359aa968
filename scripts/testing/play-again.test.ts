/**
 * What passes the second time is named as unstable; what fails again has failed.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, it } from "node:test";
import { LAYERS } from "./layers.ts";
import { playAgain } from "./play-again.ts";
import { runStage } from "./run-stage.ts";

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "flotilla-play-again-"));
});
after(() => rm(folder, { recursive: true }));

const IMPORT = 'import { it } from "node:test"; import { existsSync, writeFileSync } from "node:fs";\n';
const FAILS = 'it("one", () => { throw new Error("broken"); });';

const failsOnce = (mark: string): string => `it("one", () => {
  if (existsSync("${mark}")) return;
  writeFileSync("${mark}", "");
  throw new Error("too busy");
});`;

async function played(bodies: Readonly<Record<string, string>>) {
  const layer = LAYERS.find(({ name }) => name === "programs");
  assert.ok(layer);
  for (const [file, body] of Object.entries(bodies)) await writeFile(path.join(folder, file), IMPORT + body);
  const first = await runStage(folder, new Map([[layer, Object.keys(bodies)]]), { isNight: false });
  const { outcomes, unstable } = await playAgain(folder, first);
  return { failures: outcomes.flatMap(({ failures }) => failures).toSorted(), unstable };
}

it("a file that passes alone is unstable, and one that fails again has failed", async () => {
  assert.deepEqual(
    await played({ "a.test.mjs": failsOnce("a"), "b.test.mjs": FAILS, "c.test.mjs": 'it("one", () => {});' }),
    { failures: ["b.test.mjs: one: Error: broken"], unstable: ["a.test.mjs: one: Error: too busy"] },
  );
});

it("when many files fail, none is played again", async () => {
  const bodies = Object.fromEntries(["d", "e", "f", "g"].map((name) => [`${name}.test.mjs`, failsOnce(name)]));
  const { failures, unstable } = await played(bodies);
  assert.equal(failures.length, 4);
  assert.deepEqual(unstable, []);
});
