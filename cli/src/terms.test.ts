/**
 * The server's sentences as the command line shows them.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { RefusalDetails } from "@flotilla/sdk";
import { inCommandTerms } from "./terms.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const NAMES = [
  "--cpus",
  "--memory",
  "--name",
  "--label",
  "--env",
  "--node",
  "--tenant",
  "--max-idle",
  "--disk-only",
  "<image>",
  "--to",
];

const atMost = (value: number) => ({ of: "value", bound: "<=", value }) as const;
const atLeast = (value: number) => ({ of: "value", bound: ">=", value }) as const;
const schemaFault = (field: string, must: string, limit?: RefusalDetails["limit"]): Case[1] => ({
  field,
  must,
  ...(limit === undefined ? {} : { limit }),
});
type Case = readonly [text: string, details: RefusalDetails, shown: string];

const refusals: readonly Case[] = [
  [
    "pool x was not found; GET /v1/pools lists them",
    { call: "GET /v1/pools" },
    "pool x was not found; `flotilla pool ls` lists them",
  ],
  [
    "POST /v1/plans/p-$&/rates sets a price",
    { call: "POST /v1/plans/p-$&/rates" },
    "`flotilla plan rate p-$&` sets a price",
  ],
  ["DELETE /v1/unheard/of does it", { call: "DELETE /v1/unheard/of" }, "DELETE /v1/unheard/of does it"],
  ["keep it with memory: false", { field: "memory" }, "keep it with --disk-only"],
  ["GET /v1/pools is only in the text", {}, "GET /v1/pools is only in the text"],
  ["a schema's text", schemaFault("resources.cpus", "be at most 64", atMost(64)), "--cpus must be at most 64"],
  ["a schema's text", schemaFault("memoryMb", "be at least 128", atLeast(128)), "--memory must be at least 128m"],
  [
    "a schema's text",
    schemaFault("monthlyBudgetMicros", "be at most 2000000", atMost(2_000_000)),
    "monthlyBudgetMicros must be at most 2",
  ],
  [
    "a schema's text",
    schemaFault("timeoutSeconds", "be at most 86400", atMost(86_400)),
    "timeoutSeconds must be at most 1d",
  ],
  ["a schema's text", schemaFault("name", "be letters"), "--name must be letters"],
  [
    "a schema's text",
    schemaFault("labels.team", "have at most 255 characters", { of: "characters", bound: "<=", value: 255 }),
    "--label team must have at most 255 characters",
  ],
  ["a schema's text", schemaFault("source", "be given"), "source must be given"],
  ["a schema's text", schemaFault("source.reference", "be a string"), "<image> must be a string"],
  ["image cannot be used for it: it is old", { field: "image" }, "<image> cannot be used for it: it is old"],
  ["the cursor of tomorrow goes to it", { field: "to" }, "the cursor of tomorrow goes --to it"],
  ["leave tenantId out", { field: "tenantId" }, "leave --tenant out"],
  ["leave planId out", { field: "planId" }, "leave planId out"],
  [
    "8192 is the default; name resources.memoryMb",
    { field: "resources.memoryMb" },
    "8192 is the default; name --memory",
  ],
  ["leave tenantId out", {}, "leave tenantId out"],
];

for (const [text, details, shown] of refusals)
  test(`"${text}" with ${JSON.stringify(details)} is shown in terms of commands and options`, () =>
    assert.equal(inCommandTerms(text, details, NAMES), shown));

test("every call that a refusal names has a command, and no text names a call that its details do not", () => {
  const files = ["server/src/**/*.ts", "node/src/**/*.ts"].flatMap((pattern) => globSync(pattern, { cwd: ROOT }));
  const sources = files.filter((path) => !path.endsWith(".test.ts")).map((path) => readFileSync(ROOT + path, "utf8"));
  const lines = sources.flatMap((source) => source.split("\n")).filter((line) => !/^ *(\*|\/\*|\/\/)/.test(line));
  const call = /\b(?:GET|POST|PUT|PATCH|DELETE) \/v1(?:\/(?:[\w.-]|\$\{[^}]*\})+)+/g;
  const named = lines.flatMap((line) => line.match(call) ?? []).map((each) => each.replace(/\$\{[^}]*\}/g, "x"));
  const lists = sources.flatMap((source) => [...source.matchAll(/ list: "(\/v1\/[a-z/]+)"/g)].map(([, path]) => path));
  assert.ok(named.length > 10 && lists.length > 5, "the calls are found");
  for (const path of lists) assert.match(inCommandTerms(`GET ${path}`, { call: `GET ${path}` }, []), /^`flotilla /);
  for (const each of named) {
    assert.match(inCommandTerms(each, { call: each }, []), /^`flotilla /);
    assert.ok(named.filter((other) => other === each).length > 1, `${each} is in a text and in its details`);
  }
});
