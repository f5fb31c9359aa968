/**
 * What a file's name promises (docs/architecture.md, "Files and their roles"), checked in the server, where families
 * stand side by side: SQL only in store.ts, HTTP words only in routes.ts, no decision of state in routes.
 */
import { type Finding, lineAt, type Source, type Tree } from "./tree.ts";

/**
 * Files that may hold SQL: stores, tests, and what is no family of the API: the database's
 * own folder, the steps of every request with their small tables, and health, which asks whether anything answers.
 */
const HOLDS_SQL = /^server\/src\/(db|http|auth|health)\/|(^|[/-])store\.ts$|\.test\.ts$|^(?!server\/src\/)/;

/** Broken promises of file names. */
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
