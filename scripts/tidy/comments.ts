/**
 * The form of comments: a comment says what it describes, and its lines are narrow.
 *
 * Always:
 * - A comment begins with a noun or a verb. One that begins with "Of" or "Those" has a noun only in the line
 *   below it.
 * - A line of a comment has at most WIDTH_MAX characters, unless it is a row of a table or indented text.
 *   A trailing comment counts with its code, which the formatter bounds.
 */
import { type Finding, lineAt, type Tree } from "./tree.ts";

const WIDTH_MAX = 110;
const WITHOUT_NOUN = /^(?:\/\*\*?|\/\/|--)[\s*]*(Of|For|So|Those|Who)\b/;

/** A row of a table, or text that is indented as a whole, such as a list of routes. */
const AS_IS = /^\s*(?:\*|\/\/|--)(?: {4,}|\t| \|)/;

const GENERATED = /(?:^|\/)generated\.ts$/;

/** Comments that begin without a noun, and lines of comments that are too long. */
export function checkComments(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const [path, text] of tree.files) {
    if (!/\.(?:ts|c|h|sql)$/.test(path) || GENERATED.test(path)) continue;
    for (const { line, text: comment } of commentsOf(tree, path, text)) {
      const [, first] = WITHOUT_NOUN.exec(comment) ?? [];
      if (first !== undefined)
        findings.push({
          path,
          line,
          rule: "comment",
          message: `a comment begins with "${first}": begin with the noun that it describes, or with a verb`,
        });
      for (const [at, each] of comment.split("\n").entries())
        if (each.length > WIDTH_MAX && !AS_IS.test(each))
          findings.push({
            path,
            line: line + at,
            rule: "comment",
            message: `a line of a comment has ${each.length} characters: wrap it at ${WIDTH_MAX}`,
          });
    }
  }
  return findings;
}

interface Lines {
  readonly line: number;
  /** Whole lines, except for what precedes the first one of them. */
  readonly text: string;
}

/** Comments on lines of their own. Line comments that follow each other are one. */
function commentsOf(tree: Tree, path: string, text: string): readonly Lines[] {
  const source = tree.sources.get(path);
  const spans =
    source === undefined
      ? [...text.matchAll(/\/\*[^]*?\*\/|(?<=^[ \t]*)--[^\n]*/gm)].map((match) => ({
          start: match.index,
          text: match[0],
        }))
      : source.comments;
  const found: Lines[] = [];
  for (const { start, text: comment } of spans) {
    const lineStart = text.lastIndexOf("\n", start - 1) + 1;
    const indent = text.slice(lineStart, start);
    if (indent.trim() !== "") continue;
    const line = lineAt(text, start);
    const before = found.at(-1);
    const follows = before !== undefined && before.line + before.text.split("\n").length === line;
    if (follows && /^(?:\/\/|--)/.test(comment) && /^(?:\/\/|--)/.test(before.text))
      found[found.length - 1] = { line: before.line, text: `${before.text}\n${indent}${comment}` };
    else found.push({ line, text: comment });
  }
  return found;
}
