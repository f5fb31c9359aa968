/**
 * Migrations are applied in the order of their numbers, while servers of the release before still run.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

test("migrations are numbered from 1, without gaps and duplicates", () => {
  const names = readdirSync(new URL("../../server/src/db/migrations/", import.meta.url)).sort();
  assert.deepEqual(
    names.map((name) => Number(name.slice(0, 4))),
    names.map((_, index) => index + 1),
    names.join(", "),
  );
});

/** Earlier ones were written before this rule. */
const CHECKED_FROM = 43;
/** What a statement of the release before may still use, or not give. */
const BREAKING: Readonly<Record<string, RegExp>> = {
  "drops a table, column, function, view or type": /\bDROP\s+(?:TABLE|COLUMN|FUNCTION|VIEW|TYPE)\b/i,
  "renames something": /\bRENAME\b/i,
  "changes a column's type": /\bALTER\s+COLUMN\s+\w+\s+(?:SET\s+DATA\s+)?TYPE\b/i,
  "makes a column required": /\bSET\s+NOT\s+NULL\b/i,
  "adds a required column without a default": /\bADD\s+COLUMN\s+(?![^,;]*\bDEFAULT\b)[^,;]*\bNOT\s+NULL\b/i,
};
/** Where the release before does not use it any more: a comment with the reason. */
const CONTRACTS = /^-- contracts: .{10,}/m;

const breaks = (text: string): readonly string[] => {
  if (CONTRACTS.test(text)) return [];
  const statements = text.replaceAll(/--.*$/gm, "");
  return Object.keys(BREAKING).filter((what) => BREAKING[what]?.test(statements));
};

test("a migration leaves what servers of the release before use", () => {
  const directory = new URL("../../server/src/db/migrations/", import.meta.url);
  for (const name of readdirSync(directory).filter((each) => Number(each.slice(0, 4)) >= CHECKED_FROM)) {
    const found = breaks(readFileSync(new URL(name, directory), "utf8"));
    assert.deepEqual(found, [], `${name}: do it in the next release (docs/adding-a-table.md)`);
  }
});

test("a migration that removes, renames or requires something is found, unless it says why nothing uses it", () => {
  assert.deepEqual(breaks("ALTER TABLE a DROP COLUMN b;"), ["drops a table, column, function, view or type"]);
  assert.deepEqual(breaks("ALTER TABLE a RENAME COLUMN b TO c;"), ["renames something"]);
  assert.deepEqual(breaks("ALTER TABLE a ALTER COLUMN b TYPE bigint;"), ["changes a column's type"]);
  assert.deepEqual(breaks("ALTER TABLE a ALTER COLUMN b SET NOT NULL;"), ["makes a column required"]);
  assert.deepEqual(breaks("ALTER TABLE a ADD COLUMN b text NOT NULL;"), ["adds a required column without a default"]);
  assert.deepEqual(breaks("ALTER TABLE a ADD COLUMN b text NOT NULL DEFAULT '', ADD COLUMN c text;"), []);
  assert.deepEqual(breaks("-- contracts: unused since the release before\nALTER TABLE a DROP COLUMN b;"), []);
});
