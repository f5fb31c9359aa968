/**
 * Files that import each other in a cycle, types included: none of them can be understood first.
 *
 * oxlint finds cycles that exist at run time; this rule also finds those of types. Tests are skipped.
 */
import type { Finding, Source, Tree } from "./tree.ts";

/** One finding for each cycle, at the first of its files by name. */
export function checkCycles(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  const done = new Set<string>();
  for (const path of [...tree.sources.keys()].toSorted()) {
    const cycle = cycleThrough(tree, path, done);
    for (const each of cycle ?? []) done.add(each);
    done.add(path);
    if (cycle === null) continue;
    const line = tree.sources.get(path)?.imports.find(({ target }) => target === cycle[1])?.line ?? 1;
    const message = `a cycle of imports: ${[...cycle, path].join(" → ")}; move what they share into a separate file`;
    findings.push({ path, line, rule: "cycle", message });
  }
  return findings;
}

/** The shortest path of imports from the file back to itself that avoids the files of `done`. null: there is none. */
function cycleThrough(tree: Tree, start: string, done: ReadonlySet<string>): string[] | null {
  const before = new Map<string, string>();
  const waiting = [start];
  for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) {
    for (const target of targetsOf(tree.sources.get(path))) {
      if (target === start) return pathTo(path, before);
      if (before.has(target) || done.has(target)) continue;
      before.set(target, path);
      waiting.push(target);
    }
  }
  return null;
}

function pathTo(end: string, before: ReadonlyMap<string, string>): string[] {
  const steps = [end];
  for (let path = before.get(end); path !== undefined; path = before.get(path)) steps.unshift(path);
  return steps;
}

function targetsOf(source: Source | undefined): string[] {
  if (source === undefined || source.path.endsWith(".test.ts")) return [];
  return source.imports.flatMap(({ target }) => (target === null || target === source.path ? [] : [target]));
}
