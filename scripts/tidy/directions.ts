/**
 * Which program may import which, and which files must be pure. Rooms inside a program: rooms.ts.
 *
 * docs/architecture.md has the same table of members. The message of a refused import says what to do
 * instead. Type-only imports count between members (a type is knowledge of the other side) except where the
 * table says otherwise; they do not count for files that must be pure, because a type has no effects.
 */
import type { Finding, ImportEdge, Source, Tree } from "./tree.ts";

interface Member {
  /** Members whose files it may import. */
  readonly members: readonly string[];
  /** Members from which it may import types only. */
  readonly types?: readonly string[];
  /** What to do instead of a refused import. */
  readonly advice: string;
}

const EVERY_MEMBER = [
  "base",
  "contract",
  "server",
  "node",
  "sdk",
  "cli",
  "gateway",
  "providers",
  "guest",
  "test",
  "bench",
  "scripts",
];

const MEMBERS: Readonly<Record<string, Member>> = {
  base: { members: [], advice: "base is below every program: move what both need into it" },
  contract: { members: ["base"], advice: "contract is what the programs agree on: move what both need into it" },
  server: {
    members: ["base", "contract"],
    advice: "the server reaches a node over the link (contract/src/link/link.ts)",
  },
  node: {
    members: ["base", "contract"],
    advice: "the node reaches the server over the link (contract/src/link/link.ts)",
  },
  sdk: { members: [], types: ["contract"], advice: "the sdk runs anywhere: it takes only types from contract" },
  cli: { members: ["base", "contract", "sdk", "providers"], advice: "the command line reaches the server through sdk" },
  gateway: {
    members: ["base", "contract", "sdk"],
    advice: "a gateway is a program over the public API: it reaches the server through sdk",
  },
  providers: { members: ["sdk"], advice: "a provider is a package for others' frameworks, on the sdk alone" },
  console: { members: ["sdk"], types: ["contract"], advice: "the console reaches the server through sdk" },
  guest: {
    members: ["base", "contract", "node", "test"],
    advice: "guest/test drives the agent through the node's client",
  },
  test: { members: EVERY_MEMBER, advice: "" },
  bench: { members: EVERY_MEMBER, advice: "" },
  scripts: { members: EVERY_MEMBER, advice: "" },
};

/** Members that use nothing but Node's own modules; the sdk not even those. */
const WITHOUT_PACKAGES = ["base", "node", "sdk"];

/**
 * Members over the public API, and what they may import of contract at runtime: the rest comes through the
 * sdk.
 */
const CALLERS = ["cli", "gateway"];
const CALLERS_FROM_CONTRACT = ["contract/src/settings.ts"];

/** Refused imports of all files. */
export function checkDirections(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const source of tree.sources.values()) {
    for (const edge of source.imports) {
      const message = refusalOf(source, edge, tree);
      if (message !== null) findings.push({ path: source.path, line: edge.line, rule: "direction", message });
    }
  }
  return findings;
}

/** Members without packages list none in their package.json. */
export function checkDependencies(tree: Tree): Finding[] {
  return WITHOUT_PACKAGES.flatMap((member) => {
    const file = `${member}/package.json`;
    return packagesOf(tree, member)
      .filter((name) => !name.startsWith("@flotilla/"))
      .map((name) => ({
        path: file,
        line: 1,
        rule: "dependency",
        message: `${member} has no third-party dependency at runtime, and lists ${name}: do it with Node's own modules`,
      }));
  });
}

function refusalOf(source: Source, edge: ImportEdge, tree: Tree): string | null {
  const member = memberOf(source.path);
  const rules = MEMBERS[member];
  if (rules === undefined) return null;
  if (edge.target === null) return packageRefusal(source, edge, member, tree);
  if (!tree.files.has(edge.target)) return `imports ${edge.target}, which does not exist`;
  const other = memberOf(edge.target);
  if (other !== member && !isTest(source.path)) {
    const isAllowed = rules.members.includes(other) || (edge.isTypeOnly && (rules.types ?? []).includes(other));
    if (!isAllowed) return `${member} does not import ${other}: ${rules.advice}`;
    const isSidestep = CALLERS.includes(member) && other === "contract" && !edge.isTypeOnly;
    if (isSidestep && !CALLERS_FROM_CONTRACT.includes(edge.target))
      return `${member} takes from contract only its settings, and types: ${rules.advice}`;
  }
  if (isTest(edge.target) && !isTest(source.path)) return "code does not import tests";
  return pureRefusal(source.path, edge, edge.target);
}

function packageRefusal(source: Source, edge: ImportEdge, member: string, tree: Tree): string | null {
  const isTypeOfTest = isTest(source.path) || ["test", "bench", "scripts", "guest"].includes(member);
  if (isPure(source.path) && !edge.isTypeOnly && edge.specifier.startsWith("node:") && !isPureModule(edge.specifier))
    return `a pure file imports nothing with effects, and ${edge.specifier} has some: pass the value in`;
  if (edge.specifier.startsWith("node:"))
    return member === "sdk" && !edge.isTypeOnly && !isTest(source.path)
      ? "the sdk runs in browsers too: it imports no module of Node"
      : null;
  const name = edge.specifier.split("/", edge.specifier.startsWith("@") ? 2 : 1).join("/");
  if (WITHOUT_PACKAGES.includes(member) && !isTest(source.path) && !edge.isTypeOnly)
    return `${member} has no third-party dependency at runtime: do it without ${name}`;
  const known = [...packagesOf(tree, member), ...packagesOf(tree, ".")];
  if (isTypeOfTest) known.push(...EVERY_MEMBER.flatMap((each) => packagesOf(tree, each)));
  return known.includes(name) ? null : `${member}/package.json does not list ${name}`;
}

/** Pure files: planners, state machines, the rules of placement, views. */
function isPure(path: string): boolean {
  if (isTest(path)) return false;
  return (
    /^(server|node)\/src\/.*\/(plan|state|view|place)\.ts$/.test(path) ||
    /^server\/src\/apps\/(rollout\/[a-z-]+|facts-of|instances)\.ts$/.test(path)
  );
}

function isPureModule(specifier: string): boolean {
  return ["node:path", "node:util", "node:assert", "node:buffer", "node:url"].includes(specifier);
}

function pureRefusal(path: string, edge: ImportEdge, target: string): string | null {
  if (!isPure(path) || edge.isTypeOnly || target.startsWith("contract/")) return null;
  return isPure(target) ? null : `a pure file imports nothing with effects, and ${target} is not known to be pure`;
}

function isTest(path: string): boolean {
  return path.endsWith(".test.ts") || path.includes("/test/") || path.startsWith("test/");
}

function memberOf(path: string): string {
  return path.split("/", 1)[0] ?? "";
}

function packagesOf(tree: Tree, member: string): string[] {
  if (member === ".") return listedIn(tree.files.get("package.json"), member);
  return MEMBER_FILES.flatMap((file) => listedIn(tree.files.get(`${member}/${file}`), member));
}

/**
 * Each gateway and each provider is a package in the folder of all, and so are packages that only some tests
 * need.
 */
const MEMBER_FILES = ["package.json", "e2b/package.json", "computesdk/package.json", "ai-sdk/package.json"];

function listedIn(text: string | undefined, member: string): string[] {
  if (text === undefined) return [];
  const listed = JSON.parse(text) as Readonly<Record<string, Readonly<Record<string, string>> | undefined>>;
  const hasTests = member === "." || member === "test";
  const kinds = hasTests
    ? ["dependencies", "devDependencies"]
    : ["dependencies", "optionalDependencies", "peerDependencies"];
  return kinds.flatMap((kind) => Object.keys(listed[kind] ?? {}));
}
