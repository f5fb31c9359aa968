/**
 * Migrations are applied in the order of their numbers, while servers of the release before still run. Their
 * files are also the description of the schema: each table and column has a comment.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const directory = new URL("../../server/src/db/migrations/", import.meta.url);
const names = readdirSync(directory).sort();
const textOf = (name: string): string => readFileSync(new URL(name, directory), "utf8");

test("migrations are numbered from 1, without gaps and duplicates", () => {
  assert.deepEqual(
    names.map((name) => Number(name.slice(0, 4))),
    names.map((_, index) => index + 1),
    names.join(", "),
  );
});

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
  for (const name of names)
    assert.deepEqual(breaks(textOf(name)), [], `${name}: do it in the next release (docs/adding-a-table.md)`);
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

/** The lines of tables and columns that have no comment above them. */
function uncommented(text: string): readonly string[] {
  const found: string[] = [];
  let [above, isInTable] = ["", false];
  for (const line of text.split("\n")) {
    const isTable = line.startsWith("CREATE TABLE ");
    const isColumn = isInTable && /^ {2}[a-z]/.test(line);
    const isAdded = /^\s*(?:ALTER TABLE \w+ )?ADD COLUMN /.test(line);
    if ((isTable || isColumn || isAdded) && !above.trimStart().startsWith("--")) found.push(line);
    if (isTable) isInTable = true;
    else if (line.startsWith(")")) isInTable = false;
    above = line;
  }
  return found;
}

test("every table and column has a comment above it", () => {
  for (const name of names) assert.deepEqual(uncommented(textOf(name)), [], name);
  assert.ok(names.some((name) => textOf(name).includes("CREATE TABLE")));
});

test("a table, a column and an added column without a comment are found", () => {
  const table = "CREATE TABLE a (\n  -- Its id.\n  id text,\n  name text,\n  CHECK (id <> name)\n);";
  assert.deepEqual(uncommented(`-- As.\n${table}`), ["  name text,"]);
  assert.deepEqual(uncommented(table), ["CREATE TABLE a (", "  name text,"]);
  assert.deepEqual(uncommented("ALTER TABLE a ADD COLUMN b text;"), ["ALTER TABLE a ADD COLUMN b text;"]);
});

test("the page about billing names every function of billing", () => {
  const page = readFileSync(new URL("../../docs/billing-in-the-database.md", import.meta.url), "utf8");
  const file = names.find((name) => name.endsWith("_billing_functions.sql"));
  const made = [...textOf(file ?? "").matchAll(/^CREATE (?:FUNCTION|VIEW) (\w+)/gm)].map((match) => match[1] ?? "");
  assert.ok(made.length > 20);
  assert.deepEqual(
    made.filter((name) => !page.includes(`\`${name}`)),
    [],
  );
});
