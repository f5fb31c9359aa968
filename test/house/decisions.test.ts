/**
 * The pages of decisions are a map, not a log: few, short, each with a status, all listed in order in their
 * README.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";

const PAGES_MAX = 45;
const LINES_MAX = 40;
/** The width of prose; a row of a table cannot be wrapped. */
const WIDTH_MAX = 130;

const FOLDER = new URL("../../docs/decisions/", import.meta.url);
const files = (await readdir(FOLDER)).filter((name) => name !== "README.md").sort();
const pages = await Promise.all(
  files.map(async (file) => ({ file, lines: (await readFile(new URL(file, FOLDER), "utf8")).trimEnd().split("\n") })),
);
const numbers = new Set(files.map((file) => Number(file.slice(0, 4))));

/** The title without its number, as the README lists it. */
const titleOf = (lines: readonly string[]): string => (lines[0] ?? "").replace(/^# \d{4}: /, "");

test(`there are at most ${PAGES_MAX} pages, and their numbers differ`, () => {
  assert.ok(files.length > 20, `${files.length} pages were read`);
  assert.ok(
    files.length <= PAGES_MAX,
    `${files.length} pages: merge some, or explain the choice at the head of a file`,
  );
  assert.equal(numbers.size, files.length);
});

for (const { file, lines } of pages) {
  test(`${file} is a page of at most ${LINES_MAX} lines with a title and a status`, () => {
    assert.match(file, /^\d{4}-[a-z0-9-]+\.md$/);
    assert.match(lines[0] ?? "", new RegExp(`^# ${file.slice(0, 4)}: .`));
    assert.ok(lines.length <= LINES_MAX, `${lines.length} lines`);
    const wide = lines.filter((line) => line.length > WIDTH_MAX && !line.startsWith("|"));
    assert.deepEqual(wide, []);

    const status = /^Status: (?:holds|replaced by (\d+))$/.exec(lines[2] ?? "");
    assert.ok(status, `the third line is "${lines[2]}"; write "Status: holds" or "Status: replaced by N"`);
    if (status[1] !== undefined) {
      assert.ok(numbers.has(Number(status[1])), `there is no page ${status[1]}`);
      assert.notEqual(Number(status[1]), Number(file.slice(0, 4)));
    }
  });
}

test("the README lists every page with its title, in the order of their numbers", async () => {
  const readme = await readFile(new URL("README.md", FOLDER), "utf8");
  const listed = readme.split("\n").filter((line) => line.startsWith("| ["));
  assert.deepEqual(
    listed,
    pages.map(({ file, lines }) => `| [${file.slice(0, 4)}](${file}) | ${titleOf(lines)} |`),
  );
});

test("whatever names a decision by its number names one that exists", async () => {
  const { readTree } = await import("../../scripts/tidy/tree.ts");
  const missing = [...readTree(new URL("../..", import.meta.url).pathname).files].flatMap(([file, text]) =>
    [...text.matchAll(/\b[Dd]ecisions?\s+(?:\*\s+|\/\/\s+)?\[?(\d+)\b/g)]
      .filter(([, number]) => !numbers.has(Number(number)))
      .map(([named]) => `${file}: ${named}`),
  );
  assert.deepEqual(missing, []);
});
