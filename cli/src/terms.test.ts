/**
 * The server's sentences as the command line shows them.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inCommandTerms } from "./terms.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BODY = "Failed to deserialize the JSON body into the target type: ";
const NAMES = ["--cpus", "--memory", "--name", "--label", "--env", "--node", "--tenant", "--max-idle", "<image>"];

const sentences: readonly (readonly [text: string, shown: string])[] = [
  ["pool x was not found; GET /v1/pools lists them", "pool x was not found; `flotilla pool ls` lists them"],
  ["POST /v1/plans/p-1/rates sets a price", "`flotilla plan rate p-1` sets a price"],
  ["use `flotilla image pull a/b` (POST /v1/images/pull), then", "use `flotilla image pull a/b`, then"],
  ["DELETE /v1/unheard/of does it", "DELETE /v1/unheard/of does it"],
  [`${BODY}resources.cpus: expected a number <= 64`, "--cpus must be at most 64"],
  [`${BODY}memoryMb: expected a number >= 128`, "--memory must be at least 128m"],
  [`${BODY}monthlyBudgetMicros: expected a number <= 2000000`, "monthlyBudgetMicros must be at most 2"],
  [`${BODY}name: expected letters`, "--name must be letters"],
  [`${BODY}labels.team: expected at most 255 characters`, "--label team must have at most 255 characters"],
  [`${BODY}source.reference: expected string`, "<image> must be string"],
  [`${BODY}missing field \`source\``, "missing field `source`"],
  ["Failed to deserialize query string: limit: expected integer", "limit must be integer"],
  [`${BODY}timeoutSeconds: expected a number <= 86400`, "timeoutSeconds must be at most 1d"],
  [`${BODY}name: expected at least 1 characters`, "--name must not be empty"],
  [
    `${BODY}labels: the name "A B" is not allowed: expected letters`,
    '--label: the name "A B" is not allowed: expected letters',
  ],
  ["image cannot be used for it: it is old", "<image> cannot be used for it: it is old"],
  ["machine mach-1 cannot be moved", "machine mach-1 cannot be moved"],
  ["leave tenantId out; or maxIdleSecs, or planId", "leave --tenant out; or --max-idle, or planId"],
  ["8192 is the default; name resources.memoryMb", "8192 is the default; name --memory"],
  ["choose one of them with nodeId: a, b", "choose one of them with --node: a, b"],
  ["the name of machine docker.io/x is taken", "the name of machine docker.io/x is taken"],
];

for (const [text, shown] of sentences)
  test(`"${text}" is shown in terms of commands and options`, () => assert.equal(inCommandTerms(text, NAMES), shown));

test("every call that a sentence of the server or of a node names has a command", () => {
  const files = ["server/src/**/*.ts", "node/src/**/*.ts"].flatMap((pattern) => globSync(pattern, { cwd: ROOT }));
  const sources = files.filter((path) => !path.endsWith(".test.ts")).map((path) => readFileSync(ROOT + path, "utf8"));
  const call = /\b(GET|POST|PUT|PATCH|DELETE) \/v1\//;
  const lines = sources.flatMap((source) => source.split("\n")).filter((line) => call.test(line));
  const sentences = lines.filter((line) => !/^ *(\*|\/\*|\/\/)/.test(line));
  assert.ok(sentences.length > 10, "the sentences are found");
  for (const line of sentences) assert.doesNotMatch(inCommandTerms(line.replace(/\$\{[^}]*\}/g, "x"), []), call);
});
