/**
 * Files that import each other in a circle, types included: none of them can be read first.
 *
 * oxlint sees the circles that are there when a program runs; this sees those of types as well. Tests are left out.
 */
import type { Finding, Source, Tree } from "./tree.ts";

/** One finding for each circle, at the first of its files by name. */
export function checkCycles(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  const done = new Set<string>();
  for (const path of [...tree.sources.keys()].toSorted()) {
    const circle = circleThrough(tree, path, done);
    for (const each of circle ?? []) done.add(each);
    done.add(path);
    if (circle === null) continue;
    const line = tree.sources.get(path)?.imports.find(({ target }) => target === circle[1])?.line ?? 1;
    const message = `a circle of imports: ${[...circle, path].join(" → ")}; move what they share into a file of its own`;
    findings.push({ path, line, rule: "cycle", message });
  }
  return findings;
}

/** A way from the file back to itself that meets no file of `done`; the shortest. null: there is none. */
function circleThrough(tree: Tree, start: string, done: ReadonlySet<string>): string[] | null {
  const before = new Map<string, string>();
  const waiting = [start];
  for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) {
    for (const target of targetsOf(tree.sources.get(path))) {
      if (target === start) return wayTo(path, before);
      if (before.has(target) || done.has(target)) continue;
      before.set(target, path);
      waiting.push(target);
    }
  }
  return null;
}

function wayTo(end: string, before: ReadonlyMap<string, string>): string[] {
  const way = [end];
  for (let path = before.get(end); path !== undefined; path = before.get(path)) way.unshift(path);
  return way;
}

function targetsOf(source: Source | undefined): string[] {
  if (source === undefined || source.path.endsWith(".test.ts")) return [];
  return source.imports.flatMap(({ target }) => (target === null || target === source.path ? [] : [target]));
}
