/**
 * The files that the node agent loads when it runs.
 */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { readTree } from "../../scripts/tidy/tree.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");

test("no file that the node agent loads imports a package, not even in contract", () => {
  const { sources } = readTree(ROOT);
  const loaded = new Set(["node/src/main.ts"]);
  for (const file of loaded) {
    const imports = (sources.get(file)?.imports ?? []).filter(({ isTypeOnly }) => !isTypeOnly);
    for (const { specifier, target } of imports) {
      assert.ok(target !== null || specifier.startsWith("node:"), `${file} imports ${specifier}`);
      if (target !== null) loaded.add(target);
    }
  }
  assert.ok(loaded.has("contract/src/link/generated.ts") && loaded.size > 100, `${loaded.size} files`);
});
