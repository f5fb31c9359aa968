/**
 * What a file's name promises (docs/architecture.md, "Files and their roles"), checked in the server: only
 * store.ts contains SQL.
 */
import { type Finding, lineAt, type Source, type Tree } from "./tree.ts";

/**
 * Files that may contain SQL: stores, tests, and what is not a family of the API: the database's own folder,
 * the steps of every request with their small tables, status, which checks whether the database answers, and
 * the statement for events, which stores put into theirs.
 */
const HOLDS_SQL =
  /^server\/src\/(db|http|auth|status)\/|^server\/src\/write-events\.ts$|(^|[/-])store\.ts$|\.test\.ts$|^(?!server\/src\/)/;

/** SQL outside stores. */
export function checkRoles(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const source of tree.sources.values()) {
    if (!HOLDS_SQL.test(source.path)) findings.push(...sqlIn(source));
  }
  return findings;
}

function sqlIn(source: Source): Finding[] {
  return [...source.code.matchAll(/\bsql`/g)].map((match) => ({
    path: source.path,
    line: lineAt(source.code, match.index),
    rule: "role",
    message: "SQL outside a store.ts: one function per statement there, and this file calls it",
  }));
}
