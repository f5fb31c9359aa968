/**
 * Every relative link in every Markdown file of the repository, and in llms.txt, leads to an existing file or
 * folder, and to a heading where it names one; no link names a line, because lines move. Comments name
 * existing files too.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { readTree } from "../../scripts/tidy/tree.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const pages = [...readTree(ROOT).files].filter(([file]) => file.endsWith(".md") || file === "llms.txt");

test("there are pages to check, including the README", () => {
  assert.ok(pages.some(([file]) => file === "README.md"));
  assert.ok(pages.flatMap(([, text]) => linksOf(text)).length > 20);
});

for (const [file, text] of pages) {
  test(`every relative link of ${file} leads somewhere`, () => {
    const broken = linksOf(text).filter((link) => !leadsSomewhere(file, link));
    assert.deepEqual(broken, []);
  });
}

const MEMBERS = "base|bench|cli|contract|docs|guest|node|scripts|sdk|server|test";
const NAMED = new RegExp(`^\\s*(?:\\*|//|/\\*).*?(?<![\\w./-])((?:${MEMBERS})/[\\w./-]+\\.(?:ts|c|h|md))(?!\\w)`, "gm");
/** Migrations are never edited, so their comments keep the names of their time. */
const sources = [...readTree(ROOT).files].filter(([file]) => /\.(ts|c|h)$/.test(file));

test("every file that a comment names by its path exists", () => {
  const missing = sources.flatMap(([file, text]) =>
    [...text.matchAll(NAMED)]
      .filter(([, named = ""]) => !existsSync(path.join(ROOT, named)))
      .map(([, named]) => `${file}: ${named}`),
  );
  assert.deepEqual(missing, []);
});
/** Targets of inline links, outside fenced code, that are neither web nor mail addresses. */
function linksOf(text: string): string[] {
  const prose = text.replace(/^```[^]*?^```/gm, "");
  return [...prose.matchAll(/\]\(([^()\s]+)\)/g)]
    .map(([, target]) => target ?? "")
    .filter((target) => !/^[a-z]+:/.test(target));
}

function leadsSomewhere(file: string, link: string): boolean {
  const [target = "", anchor] = link.split("#");
  const absolute = target === "" ? path.join(ROOT, file) : path.join(ROOT, path.dirname(file), target);
  if (!existsSync(absolute)) return false;
  if (anchor === undefined) return true;
  return statSync(absolute).isFile() && headingsOf(readFileSync(absolute, "utf8")).includes(anchor);
}

/**
 * Anchors as the usual renderers make them: `## Files and their roles` → `files-and-their-roles`. A line has
 * none.
 */
function headingsOf(text: string): string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    (heading ?? "")
      .toLowerCase()
      .replace(/[^\w\s-]/g, "")
      .replace(/\s/g, "-"),
  );
}
