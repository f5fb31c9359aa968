/**
 * Each rule of `npm run tidy` fails on a few lines that break it and passes on their corrected form.
 *
 * A case is two small trees and the rule's name: the first must give exactly one finding of that rule, the
 * second none. The tokenizer's difficult inputs have their own cases.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkBanned } from "./tidy/banned.ts";
import { checkComments } from "./tidy/comments.ts";
import { checkCycles } from "./tidy/cycles.ts";
import { checkDead } from "./tidy/dead.ts";
import { checkDependencies, checkDirections } from "./tidy/directions.ts";
import { checkFamilies } from "./tidy/families.ts";
import { checkForm } from "./tidy/form.ts";
import { maskSource } from "./tidy/mask.ts";
import { checkPhrases, lowerCounts } from "./tidy/phrases.ts";
import { checkRoles } from "./tidy/roles.ts";
import { checkRooms, PROGRAMS } from "./tidy/rooms.ts";
import { type Finding, makeTree, type Tree } from "./tidy/tree.ts";
import { checkWords } from "./tidy/words.ts";

type Files = Readonly<Record<string, string>>;

interface Case {
  readonly says: string;
  readonly rule: string;
  readonly check: (tree: Tree) => Finding[];
  readonly bad: Files;
  readonly good: Files;
}

const HEAD = "/**\n * A thing.\n */\n";
const at = (path: string, line: string): Files => ({ [path]: `${HEAD}${line}\n` });

const CASES: readonly Case[] = [
  ...directions(),
  ...rooms(),
  ...families(),
  {
    says: "files do not import each other in a cycle, not even for types",
    rule: "cycle",
    check: checkCycles,
    bad: {
      "cli/src/a.ts": 'import type { B } from "./b.ts";\nexport type A = 1;\n',
      "cli/src/b.ts": 'import { c } from "./c.ts";\nexport type B = 1;\n',
      "cli/src/c.ts": 'import type { A } from "./a.ts";\nexport const c = 1;\n',
    },
    good: {
      "cli/src/a.ts": 'import type { B } from "./b.ts";\nimport { c } from "./c.ts";\nexport type A = 1;\n',
      "cli/src/b.ts": 'import { c } from "./c.ts";\nexport type B = 1;\n',
      "cli/src/c.ts": "export const c = 1;\n",
    },
  },
  {
    says: "files of the guest do not include each other in a cycle",
    rule: "cycle",
    check: checkCycles,
    bad: {
      "guest/a.c": '#include "a.h"\n#include "b.h"\n',
      "guest/a.h": "",
      "guest/b.c": '#include "b.h"\n',
      "guest/b.h": '#include "a.h"\n',
    },
    good: {
      "guest/a.c": '#include "a.h"\n#include "b.h"\n#include "c.h"\n',
      "guest/a.h": '#include "c.h"\n',
      "guest/b.c": '#include "b.h"\n',
      "guest/b.h": '#include "c.h"\n',
    },
  },
  ...bans(),
  ...forms(),
  ...words(),
  ...phrases(),
  ...comments(),
  ...deads(),
  {
    says: "only a store contains SQL",
    rule: "role",
    check: checkRoles,
    bad: at("server/src/machines/start.ts", "const rows = db.query(sql`SELECT 1`);"),
    good: at("server/src/machines/store.ts", "const rows = db.query(sql`SELECT 1`);"),
  },
];

for (const { says, rule, check, bad, good } of CASES) {
  it(`${says}`, () => {
    const found = check(makeTree(Object.entries(bad)));
    assert.deepEqual(
      found.map((finding) => finding.rule),
      [rule],
      JSON.stringify(found, null, 2),
    );
    assert.deepEqual(check(makeTree(Object.entries(good))), []);
  });
}

for (const [member, { ground, rooms }] of Object.entries(PROGRAMS)) {
  it(`the table of rooms has no cycle in ${member}`, () => {
    const below = new Set(ground);
    for (const [room, permitted] of Object.entries(rooms)) {
      for (const other of permitted) assert.ok(below.has(other), `${room} imports ${other}, which is not before it`);
      below.add(room);
    }
  });
}

function families(): Case[] {
  const plans = "export const planFamily = () => ({});\n";
  const tenants = "export const tenantFamily = () => ({});\n";
  const both = { "server/src/plans/family.ts": plans, "server/src/tenants/family.ts": tenants };
  const listed = (calls: string): Files => ({ ...both, "server/src/families.ts": `const families = [${calls}];\n` });
  const good = listed("planFamily(), tenantFamily()");
  const named = (says: string, bad: Files): Case => ({ says, rule: "family", check: checkFamilies, bad, good });
  return [
    named("every family is in the list", listed("tenantFamily()")),
    named("an import is no line of the list", {
      ...both,
      "server/src/families.ts": 'import { planFamily } from "./plans/family.ts";\nconst families = [tenantFamily()];\n',
    }),
    named("the list of families has the order of the rooms", listed("tenantFamily(), planFamily()")),
    named("a family has a function of a known name", {
      ...listed("plansOf(), tenantFamily()"),
      "server/src/plans/family.ts": "export const plansOf = () => ({});\n",
    }),
    named("a room with handlers has a family", { ...good, "server/src/volumes/routes.ts": "" }),
    named("a room with a loop has a family", { ...good, "server/src/volumes/sizes/growth-loop.ts": "" }),
  ];
}

function rooms(): Case[] {
  const edge = (says: string, from: string, to: string, insteadTo: string): Case => ({
    says,
    rule: "room",
    check: checkRooms,
    bad: { [from]: `import type { A } from "${relative(from, to)}";\n`, [to]: "export type A = 1;\n" },
    good: { [from]: `import type { A } from "${relative(from, insteadTo)}";\n`, [insteadTo]: "export type A = 1;\n" },
  });
  const db = "server/src/db/a.ts";
  return [
    edge("the pipeline imports no family", "server/src/api/b.ts", "server/src/machines/a.ts", "server/src/auth/a.ts"),
    edge("db is below everything", "server/src/db/b.ts", "server/src/http/a.ts", db),
    edge("the ground is ordered too", "server/src/db/b.ts", "server/src/context.ts", db),
    edge("a family imports no driver of loops", "server/src/plans/b.ts", "server/src/reconcilers/a.ts", db),
    edge("machines import no node", "server/src/machines/b.ts", "server/src/nodes/a.ts", "server/src/link/a.ts"),
    edge("services import no machines", "server/src/services.ts", "server/src/machines/a.ts", "server/src/link/a.ts"),
    edge("no room imports a top file", "server/src/http/b.ts", "server/src/assemble.ts", db),
    {
      says: "every room is in the table",
      rule: "room",
      check: checkRooms,
      bad: { "server/src/cellar/a.ts": "", "server/src/cellar/b.ts": "" },
      good: { "server/src/machines/a.ts": "", "server/src/cellar/a.test.ts": "" },
    },
    {
      says: "the table lists no unused import",
      rule: "room",
      check: checkRooms,
      bad: { "scripts/tidy/rooms.ts": "", "server/src/http/b.ts": "", "server/src/auth/a.ts": "" },
      good: {
        "scripts/tidy/rooms.ts": "",
        "server/src/http/b.ts": 'import { a } from "../auth/a.ts";\n',
        "server/src/auth/a.ts": "",
      },
    },
    {
      says: "tests may import any room",
      rule: "room",
      check: checkRooms,
      bad: at("server/src/link/b.ts", 'import { a } from "../nodes/a.ts";'),
      good: at("server/src/link/b.test.ts", 'import { a } from "../nodes/a.ts";'),
    },
  ];
}

function directions(): Case[] {
  const edge = (says: string, from: string, to: string, insteadTo: string): Case => ({
    says,
    rule: "direction",
    check: checkDirections,
    bad: { [from]: `import { a } from "${relative(from, to)}";\n`, [to]: "export const a = 1;\n" },
    good: { [from]: `import { a } from "${relative(from, insteadTo)}";\n`, [insteadTo]: "export const a = 1;\n" },
  });
  const own = "contract/src/a.ts";
  return [
    edge("contract imports no program", "contract/src/b.ts", "server/src/a.ts", own),
    edge("base imports nothing of ours", "base/src/b.ts", own, "base/src/a.ts"),
    edge("the sdk does not import base", "sdk/src/b.ts", "base/src/a.ts", "sdk/src/a.ts"),
    edge("the server does not import the node", "server/src/b.ts", "node/src/a.ts", own),
    edge("the node does not import the server", "node/src/b.ts", "server/src/a.ts", own),
    edge("the sdk imports only itself", "sdk/src/b.ts", own, "sdk/src/a.ts"),
    edge("the command line does not import the server", "cli/src/b.ts", "server/src/a.ts", "sdk/src/a.ts"),
    edge("the command line takes settings from contract", "cli/src/b.ts", own, "contract/src/settings.ts"),
    edge(
      "a planner imports no effects",
      "node/src/machines/plan.ts",
      "base/src/clock.ts",
      "node/src/machines/state.ts",
    ),
    edge("the rules of placement import no effects", "server/src/placement/place.ts", "server/src/db/a.ts", own),
    edge("code does not import tests", "server/src/b.ts", "server/test/a.ts", own),
    {
      says: "an import names a file that exists",
      rule: "direction",
      check: checkDirections,
      bad: { "sdk/src/b.ts": 'import { a } from "./a.ts";\n' },
      good: { "sdk/src/b.ts": 'import { a } from "./a.ts";\n', "sdk/src/a.ts": "" },
    },
    {
      says: "the sdk may take types from contract",
      rule: "direction",
      check: checkDirections,
      bad: { "sdk/src/b.ts": 'import { A } from "@flotilla/contract/a";\n', [own]: "" },
      good: { "sdk/src/b.ts": 'import type { A } from "@flotilla/contract/a";\n', [own]: "" },
    },
    {
      says: "the node imports no package",
      rule: "direction",
      check: checkDirections,
      bad: { "node/src/b.ts": 'import { request } from "undici";\n' },
      good: { "node/src/b.ts": 'import { request } from "node:http";\n' },
    },
    {
      says: "the sdk imports no module of Node",
      rule: "direction",
      check: checkDirections,
      bad: { "sdk/src/b.ts": 'import { request } from "node:http";\n' },
      good: { "sdk/src/b.ts": "export const a = fetch;\n" },
    },
    {
      says: "a planner imports no module with effects",
      rule: "direction",
      check: checkDirections,
      bad: { "node/src/machines/plan.ts": 'import { rm } from "node:fs/promises";\n' },
      good: { "node/src/machines/plan.ts": 'import path from "node:path";\n' },
    },
    {
      says: "a package is listed by the member that imports it",
      rule: "direction",
      check: checkDirections,
      bad: { "server/src/b.ts": 'import pg from "pg";\n', "server/package.json": "{}" },
      good: { "server/src/b.ts": 'import pg from "pg";\n', "server/package.json": '{"dependencies":{"pg":"1"}}' },
    },
    {
      says: "the node's package.json lists no package",
      rule: "dependency",
      check: checkDependencies,
      bad: { "node/package.json": '{"dependencies":{"@flotilla/contract":"1","undici":"1"}}' },
      good: { "node/package.json": '{"dependencies":{"@flotilla/contract":"1"}}' },
    },
  ];
}

function bans(): Case[] {
  const ban = (says: string, rule: string, bad: string, good: string, path = "server/src/a.ts"): Case => ({
    says,
    rule,
    check: checkBanned,
    bad: at(path, bad),
    good: at(path, good),
  });
  return [
    ban("the time comes from the clock", "clock", "const now = Date.now();", "const now = clock.now();"),
    ban(
      "tests may read clocks, but not wait",
      "timer",
      "setTimeout(go, 5);",
      "const at = performance.now();",
      "test/a.ts",
    ),
    ban("a date is made from a time", "clock", "const d = new Date();", "const d = new Date(at);"),
    ban("timers live in the clock", "timer", "setTimeout(go, 5);", "await clock.sleep(5);"),
    ban(
      "timers are not imported past the clock",
      "timer",
      'import { setTimeout as sleep } from "node:timers/promises";',
      'import { once } from "node:events";',
    ),
    ban("randomness comes from the context", "random", "const n = Math.random();", "const n = randomBytes(8);"),
    ban("nothing writes to the console", "console", 'console.log("x");', 'log.info({}, "x");'),
    ban("settings come from the config", "environment", "const home = process.env.HOME;", "const { home } = config;"),
    ban("nothing blocks the process", "blocking", 'readFileSync("x");', 'await readFile("x");'),
    ban("any is unknown", "any", "function f(x: any) {}", "function f(x: unknown) {}"),
    ban("a non-null mark has its reason", "non-null", "use(list[0]!);", "use(list[0]!); // checked above"),
    ban("exports have names", "default export", "export default 1;", "export const one = 1;"),
    ban("all tests run", "only", 'test.only("x", f);', 'test("x", f);', "server/test/a.test.ts"),
    ban(
      "a test does not sleep",
      "sleep in a test",
      "await clock.sleep(100);",
      "await until(() => isReady, 100);",
      "server/test/a.test.ts",
    ),
    ban(
      "a line may break a rule with a reason",
      "clock",
      "// tidy-allow clock:\nconst now = Date.now();",
      "// tidy-allow clock: the driver wants a real one\nconst now = Date.now();",
    ),
  ];
}

function forms(): Case[] {
  const form = (says: string, rule: string, bad: Files, good: Files): Case => ({
    says,
    rule,
    check: checkForm,
    bad,
    good,
  });
  const body = (lines: number) => `${HEAD}${"a();\n".repeat(lines - 3)}`;
  return [
    form("a file begins with its head", "head", { "server/src/a.ts": "a();\n" }, at("server/src/a.ts", "a();")),
    form("a head is not one line", "head", { "a.ts": "/** A. */\n" }, { "a.ts": HEAD }),
    form(
      "a head is at most 25 lines",
      "head",
      { "a.ts": `/*\n${"*\n".repeat(24)}*/\n` },
      { "a.ts": `/*\n${"*\n".repeat(23)}*/\n` },
    ),
    form("a C file begins with its head", "head", { "guest/a.c": "int a;\n" }, { "guest/a.c": "/* A. */\nint a;\n" }),
    form(
      "a script begins with its head",
      "head",
      { go: "#!/bin/sh\nset -eu\n" },
      { go: "#!/bin/sh\n# Goes.\nset -eu\n" },
    ),
    form(
      "a migration begins with its head",
      "head",
      { "server/src/db/migrations/0001_a.sql": "SELECT 1;\n" },
      { "server/src/db/migrations/0001_a.sql": "-- Machines.\nSELECT 1;\n" },
    ),
    form("a file is at most 600 lines", "size", { "a.ts": body(601) }, { "a.ts": body(600) }),
    form("a test file is at most 900 lines", "size", { "a.test.ts": body(901) }, { "a.test.ts": body(900) }),
    form(
      "a folder is named after what it holds",
      "name",
      at("server/src/utils/a.ts", ""),
      at("server/src/db/a.ts", ""),
    ),
    form("a file is kebab-case", "name", at("server/src/machineState.ts", ""), at("server/src/machine-state.ts", "")),
    form(
      "a check is switched off with a reason",
      "switched off",
      at("a.ts", "// oxlint-disable-next-line no-var"),
      at("a.ts", "// oxlint-disable-next-line no-var -- the old interface needs it"),
    ),
  ];
}

function comments(): Case[] {
  const comment = (says: string, bad: Files, good: Files): Case => ({
    says,
    rule: "comment",
    check: checkComments,
    bad,
    good,
  });
  return [
    comment(
      "a doc comment names what it describes",
      at("base/src/a.ts", "/** Of the machine. */\nconst id = 1;"),
      at("base/src/a.ts", "/** Id of the machine. */\nconst id = 1;"),
    ),
    comment(
      "a comment of several lines names what it describes",
      { "guest/a.c": "/*\n * Those that wait.\n */\n" },
      { "guest/a.c": "/*\n * Requests that wait.\n */\n" },
    ),
    comment(
      "a line comment names what it describes, and may continue with any word",
      at("base/src/a.ts", "// For tests.\na();"),
      at("base/src/a.ts", "// A shorter time\n// For tests.\na(); // Of this."),
    ),
    comment(
      "a line of a comment has at most 110 characters",
      { "guest/a.c": `/* ${"a".repeat(105)} */\n` },
      { "guest/a.c": `/* ${"a".repeat(104)} */\n` },
    ),
  ];
}

function words(): Case[] {
  const word = (says: string, rule: string, bad: string, good: string): Case => ({
    says,
    rule,
    check: checkWords,
    bad: { "docs/a.md": bad },
    good: { "docs/a.md": good },
  });
  return [
    word("nothing is left to fix", "unfinished", "FIXME", "fixed"),
    word("a TODO names its topic", "unfinished", "TODO: more", "TODO(scheduler): weigh nodes by load"),
    word("no path of one machine", "machine path", "see /home/jo/x", "see ~/x"),
    word("no registry's host name", "registry host", `from ${["pypi", "org"].join(".")}`, "from the package index"),
    word("no trace of where it was discussed", "trace", "see issue 12", "see the decision on disks"),
  ];
}

function deads(): Case[] {
  const dead = (says: string, bad: Files, good: Files): Case => ({ says, rule: "dead", check: checkDead, bad, good });
  return [
    dead(
      "a file is used",
      { "server/src/main.ts": "", "server/src/a.ts": "" },
      { "server/src/main.ts": 'import "./a.ts";\n', "server/src/a.ts": "" },
    ),
    dead(
      "a file may be used as a program",
      { "server/src/main.ts": "", "server/src/a.ts": "" },
      { "server/src/main.ts": 'spawn("server/src/a.ts");\n', "server/src/a.ts": "" },
    ),
    dead(
      "an exported value is imported",
      {
        "server/src/main.ts": 'import { a } from "./a.ts";\n',
        "server/src/a.ts": "export const a = 1, c = 2;\nexport function b() {}\n",
      },
      {
        "server/src/main.ts": 'import { a, b } from "./a.ts";\n',
        "server/src/a.ts": "export const a = 1;\nexport function b() {}\n",
      },
    ),
    dead(
      "an exported type is imported or used beside it",
      {
        "server/src/main.ts": 'import { a } from "./a.ts";\n',
        "server/src/a.ts": "export type A = 1;\nexport const a = 1;\n",
      },
      {
        "server/src/main.ts": 'import { a } from "./a.ts";\n',
        "server/src/a.ts": "export type A = 1;\nexport const a: A = 1;\n",
      },
    ),
  ];
}

function phrases(): Case[] {
  const recorded = (text: string): Files => ({ "scripts/tidy/phrases.txt": text });
  const phrase = (says: string, bad: Files, good: Files): Case => ({
    says,
    rule: "phrase",
    check: checkPhrases,
    bad,
    good,
  });
  return [
    phrase("a phrase to avoid is not added", { "docs/a.md": "Nobody reads it." }, { "docs/a.md": "It is unused." }),
    phrase(
      "a recorded count of a phrase is not exceeded",
      { "cli/a.md": "nobody", "cli/b.md": "nobody", ...recorded("cli nobody 1\n") },
      { "cli/a.md": "nobody", "docs/words.md": "nobody", ...recorded("cli nobody 1\n") },
    ),
    phrase(
      "the lower of two recorded counts holds, as a merge leaves them",
      { "cli/a.md": "nobody nobody", ...recorded("cli nobody 2\ncli nobody 1\n") },
      { "cli/a.md": "nobody", ...recorded("cli nobody 2\ncli nobody 1\n") },
    ),
    phrase(
      "a phrase is found across a line break in a comment",
      at("cli/a.ts", "/** The server is\n * told. */"),
      at("cli/a.ts", "/** The server is */ told();"),
    ),
  ];
}

describe("the recorded counts of phrases", () => {
  const lowered = (files: Files): string => lowerCounts(makeTree(Object.entries(files)));

  it("are lowered to what is in the tree, and never raised", () => {
    const recorded = "cli anew 4\ncli nobody 3\ndocs nobody 1\n";
    const files = { "cli/a.md": "nobody nobody", "docs/a.md": "nobody nobody", "scripts/tidy/phrases.txt": recorded };
    assert.equal(lowered(files), "cli nobody 2\ndocs nobody 1\n");
  });

  it("begin with what is in the tree", () => {
    assert.equal(lowered({ "README.md": "nobody" }), "root nobody 1\n");
  });
});

describe("the tokenizer", () => {
  const masked = (text: string) => maskSource(text).code;

  it("blanks strings and comments and keeps every offset", () => {
    const text = `a("Date.now()"); // Date.now()\n/* Math.random() */ b('x');`;
    assert.equal(masked(text), `a("          ");              \n                    b(' ');`);
  });

  it("keeps the code inside a template and blanks the text around it", () => {
    assert.equal(masked("`x ${a({ b: `y ${c}` })} z`"), "`  ${a({ b: `  ${c}` })}  `");
  });

  it("tells a regular expression from a division", () => {
    assert.equal(masked('x = /"/.test(y); z = a / b; w = c / d;'), "x =    .test(y); z = a / b; w = c / d;");
    assert.equal(masked("return /[/]`/g;"), "return        ;");
  });

  it("is not confused by quotes in comments or comments in quotes", () => {
    assert.equal(masked("// don't\na('//');").trim(), "a('  ');");
  });

  it("reads what a clause imports, and whether it is erased", () => {
    const tree = makeTree([
      [
        "server/src/a.ts",
        [
          'import type { A } from "./b.ts";',
          'import { type B, type C as D } from "./b.ts";',
          'import { type E, f as g } from "./b.ts";',
          'import * as all from "./b.ts";',
          'export { h } from "./b.ts";',
          'const late = await import("./b.ts");',
        ].join("\n"),
      ],
    ]);
    const imports = tree.sources.get("server/src/a.ts")?.imports ?? [];
    assert.deepEqual(
      imports.map((edge) => [edge.isTypeOnly, edge.names]),
      [
        [true, ["A"]],
        [true, ["B", "C"]],
        [false, ["E", "f"]],
        [false, null],
        [false, ["h"]],
        [false, null],
      ],
    );
  });
});

function relative(from: string, to: string): string {
  const up = "../".repeat(from.split("/").length - 1);
  return `${up}${to}`;
}
