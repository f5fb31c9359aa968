/**
 * Every test file of the repository is run by exactly one layer.
 */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { LAYERS, STAGES, testFilesByLayer } from "../../scripts/testing/layers.ts";
import { NIGHT } from "../../scripts/testing/night.ts";
import { readTree } from "../../scripts/tidy/tree.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const { files } = readTree(ROOT);

test("every test file of the tree is in exactly one layer", () => {
  const inTree = [...files.keys()].filter((file) => file.endsWith(".test.ts"));
  const inLayers = [...testFilesByLayer(ROOT).values()].flat();
  assert.deepEqual(inLayers.toSorted(), inTree.toSorted());
});

test("every layer is in one stage", () => {
  assert.deepEqual(STAGES.flat().toSorted(), LAYERS.map(({ name }) => name).toSorted());
});

test("every file of the night is there, and reads the settings that make it long", () => {
  for (const [file, settings] of Object.entries(NIGHT)) {
    const text = files.get(file);
    assert.ok(text !== undefined, file);
    const imports = text.matchAll(/"(?:\.\.\/\.\.\/test|\.\.)\/(support\/[\w-]+\.ts)"/g);
    const helpers = [...imports].map(([, name]) => files.get(`test/${name}`));
    const read = [text, ...helpers].join("\n");
    for (const name of Object.keys(settings)) assert.ok(read.includes(name), `${file} does not read ${name}`);
  }
});
