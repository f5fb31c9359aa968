/**
 * `npm run golden`: writes every generated file of the repository anew; with `--check` it only says which are stale.
 *
 * A generated file is committed, so that a reader finds it and a change to it is reviewed like code. Each comes from
 * one function that returns its whole text; this file knows where the text goes and nothing about what it says.
 */
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { openApiDocument } from "@flotilla/contract/openapi";
import { generateSdk } from "./generate-sdk.ts";
import { renderConfiguration } from "./render-configuration.ts";
import { renderStates } from "./render-states.ts";

const root = path.resolve(import.meta.dirname, "..");
const isCheck = process.argv.includes("--check");

const golden = new Map<string, string>([
  ["contract/openapi.json", `${JSON.stringify(openApiDocument(), null, 2)}\n`],
  ["docs/configuration.md", renderConfiguration()],
  ["docs/states.md", renderStates()],
  ["sdk/src/generated.ts", await generateSdk()],
]);
for (const [name, fresh] of golden) {
  const file = path.join(root, name);
  const committed = await readFile(file, "utf8").catch(() => null);
  if (committed === fresh) continue;
  if (isCheck) process.exitCode = 1;
  else await writeFile(file, fresh);
  process.stdout.write(`${name} ${isCheck ? "is stale: run npm run golden and review the change" : "written"}\n`);
}
