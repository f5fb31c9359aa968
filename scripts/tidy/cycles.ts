/**
 * Files that import each other in a cycle, types included: none of them can be understood first.
 *
 * oxlint finds cycles that exist at run time; this rule also finds those of types, and those of the guest's
 * C, where a file and its header are one. Tests are skipped.
 */
import type { Finding, Source, Tree } from "./tree.ts";

/** What each file imports, and the line. */
type Graph = ReadonlyMap<string, ReadonlyMap<string, number>>;

/** One finding for each cycle, at the first of its files by name. */
export function checkCycles(tree: Tree): Finding[] {
  return [...findingsOf(importsOf(tree)), ...findingsOf(includesOf(tree))];
}

function findingsOf(graph: Graph): Finding[] {
  const findings: Finding[] = [];
  const done = new Set<string>();
  for (const path of [...graph.keys()].toSorted()) {
    const cycle = cycleThrough(graph, path, done);
    for (const each of cycle ?? []) done.add(each);
    done.add(path);
    if (cycle === null) continue;
    const line = graph.get(path)?.get(cycle[1] ?? "") ?? 1;
    const message = `a cycle of imports: ${[...cycle, path].join(" → ")}; move what they share into a separate file`;
    findings.push({ path, line, rule: "cycle", message });
  }
  return findings;
}

/**
 * The shortest path of imports from the file back to itself that avoids the files of `done`. null: there is
 * none.
 */
function cycleThrough(graph: Graph, start: string, done: ReadonlySet<string>): string[] | null {
  const before = new Map<string, string>();
  const waiting = [start];
  for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) {
    for (const target of graph.get(path)?.keys() ?? []) {
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

function importsOf(tree: Tree): Graph {
  const withoutTests = [...tree.sources].filter(([path]) => !path.endsWith(".test.ts"));
  return new Map(withoutTests.map(([path, source]) => [path, targetsOf(source)]));
}

function targetsOf(source: Source): Map<string, number> {
  const targets = source.imports.flatMap(({ target, line }): [string, number][] =>
    target === null || target === source.path ? [] : [[target, line]],
  );
  return new Map(targets.toReversed());
}

/** The includes of the guest's C by file without its ending: `channel.c` and `channel.h` are one. */
function includesOf(tree: Tree): Graph {
  const graph = new Map<string, Map<string, number>>();
  for (const [path, text] of tree.files) {
    const [, stem] = /^(guest\/[a-z-]+)\.[ch]$/.exec(path) ?? [];
    if (stem === undefined) continue;
    const includes = graph.get(stem) ?? new Map<string, number>();
    graph.set(stem, includes);
    for (const [at, line] of text.split("\n").entries()) {
      const [, name] = /^#include "([a-z-]+)\.h"/.exec(line) ?? [];
      if (name !== undefined && `guest/${name}` !== stem) includes.set(`guest/${name}`, at + 1);
    }
  }
  return graph;
}
