/**
 * Pages for readers say what is, not what was: no release exists that a sentence about the past could mean.
 */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { readTree } from "../../scripts/tidy/tree.ts";

const PAST = [
  /(?<!\b(?:is|are|be|was|were|being) )\bused to\b/i,
  /\bno longer\b(?! than)/i,
  /\bbefore this (?:page|decision|change|release|rule)\b/i,
  /\bsince version\b/i,
  /\b(?:was|were) removed (?:in|with|since)\b/i,
];

const ROOT = path.resolve(import.meta.dirname, "../..");
const pages = [...readTree(ROOT).files].filter(
  ([file]) => file.endsWith(".md") && !file.startsWith("bench/results/") && file !== "docs/words.md",
);

test("no page describes a past version", () => {
  assert.ok(pages.length > 50, `${pages.length} pages were read`);
  const found = pages.flatMap(([file, text]) => {
    const flat = text.replace(/\s+/g, " ");
    return PAST.flatMap((pattern) => {
      const at = flat.search(pattern);
      return at === -1 ? [] : [`${file}: ${flat.slice(Math.max(0, at - 60), at + 60)}`];
    });
  });
  assert.deepEqual(found, []);
});
