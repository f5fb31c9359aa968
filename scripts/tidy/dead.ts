/**
 * Files and exported names that are unused.
 *
 * A file is used when another imports it, when it is an entry point, or when another file names it in a
 * string (a program that is started as a process). A name is used when another file imports it. In contract a
 * name may also be used in its own file only: schemas are composed there, and their names are for readers of
 * the API.
 */
import type { Finding, Source, Tree } from "./tree.ts";

const ENTRY_POINTS = [
  /\.test\.ts$/,
  /^scripts\/[a-z-]+\.ts$/,
  /^bench\/[a-z-]+\.ts$/,
  /^(server|node|cli)\/src\/main\.ts$/,
  /^sdk\/src\/index\.ts$/,
  /^docs\//,
];

/** Folders whose exports are for other projects. */
const PUBLIC = [/^sdk\/src\//, /^providers\/[a-z-]+\/src\/(provider|tools)\.ts$/];
/**
 * Folders where a name may be used in its own file only; types may everywhere, as part of what the file
 * exports.
 */
const MAY_LIVE_ALONE = [/^contract\/src\//];

/** Unused files and exports. */
export function checkDead(tree: Tree): Finding[] {
  const used = namesInUse(tree);
  const findings: Finding[] = [];
  for (const source of tree.sources.values()) {
    const isEntryPoint = ENTRY_POINTS.some((pattern) => pattern.test(source.path));
    const names = used.get(source.path);
    if (names === undefined && !isEntryPoint && !isNamedElsewhere(tree, source.path)) {
      findings.push({ path: source.path, line: 1, rule: "dead", message: "nothing imports or starts this file" });
      continue;
    }
    if (names === null || PUBLIC.some((pattern) => pattern.test(source.path))) continue;
    findings.push(...deadNames(source, names ?? new Set()));
  }
  return findings;
}

function deadNames(source: Source, names: ReadonlySet<string>): Finding[] {
  const mayLiveAlone = MAY_LIVE_ALONE.some((pattern) => pattern.test(source.path));
  const dead = source.exports.filter(
    ({ name, isType }) => !names.has(name) && !((mayLiveAlone || isType) && countOf(source, name) > 1),
  );
  return dead.map(({ line, name }) => ({
    path: source.path,
    line,
    rule: "dead",
    message:
      countOf(source, name) > 1 ? `nothing imports ${name}: drop the word export` : `nothing uses ${name}: remove it`,
  }));
}

function countOf(source: Source, name: string): number {
  return [...source.code.matchAll(new RegExp(`(?<![\\w$])${name.replaceAll("$", "\\$")}(?![\\w$])`, "g"))].length;
}

/** The names imported from each file; null: all of them. */
function namesInUse(tree: Tree): Map<string, Set<string> | null> {
  const used = new Map<string, Set<string> | null>();
  for (const source of tree.sources.values()) {
    for (const { target, names } of source.imports) {
      if (target === null || target === source.path) continue;
      const known = used.get(target);
      if (names === null || known === null) used.set(target, null);
      else used.set(target, new Set([...(known ?? []), ...names]));
    }
  }
  return used;
}

/** Whether a string or a script names the file by the end of its path, such as `node server/src/main.ts`. */
function isNamedElsewhere(tree: Tree, path: string): boolean {
  const [folder = "", name = ""] = path.split("/").slice(-2);
  const needles = [`${folder}/${name}`, `./${name}`];
  for (const [other, text] of tree.files) {
    if (other === path || other.endsWith(".md")) continue;
    if (needles.some((needle) => text.includes(needle))) return true;
  }
  return false;
}
