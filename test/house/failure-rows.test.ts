/**
 * The tables of what is billed when something fails (docs/decisions/0029 and 0031): each row names a test
 * that exists.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const ROOT = new URL("../../", import.meta.url);
const TABLES = [
  { page: "docs/decisions/0029-usage-intervals.md", head: "| what happens | what is billed | test |", rowsMin: 5 },
  { page: "docs/decisions/0031-runs-of-nodes.md", head: "| what happens | what is written | test |", rowsMin: 8 },
] as const;

for (const { page, head, rowsMin } of TABLES) {
  test(`every row of the table of failures in ${page} has a test`, async () => {
    const lines = (await readFile(new URL(page, ROOT), "utf8")).split("\n");
    const begin = lines.indexOf(head) + 2;
    const rows = lines.slice(begin, lines.indexOf("", begin));
    assert.ok(begin > 1 && rows.length >= rowsMin, `${rows.length} rows were read`);
    for (const row of rows) {
      const [, file, title] = /\| `([^`]+)`: ([^|]+) \|$/.exec(row) ?? [];
      assert.ok(file !== undefined && title !== undefined, `it names no test: ${row}`);
      assert.ok((await readFile(new URL(file, ROOT), "utf8")).includes(title), `${file} has no test "${title}"`);
    }
  });
}
