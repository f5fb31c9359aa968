/**
 * Every test file of the repository is run by exactly one layer.
 */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { LAYERS, STAGES, testFilesByLayer } from "../../scripts/testing/layers.ts";
import { readTree } from "../../scripts/tidy/tree.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");

test("every test file of the tree is in exactly one layer", () => {
  const inTree = [...readTree(ROOT).files.keys()].filter((file) => file.endsWith(".test.ts"));
  const inLayers = [...testFilesByLayer(ROOT).values()].flat();
  assert.deepEqual(inLayers.toSorted(), inTree.toSorted());
});

test("every layer is in one stage", () => {
  assert.deepEqual(STAGES.flat().toSorted(), LAYERS.map(({ name }) => name).toSorted());
});
