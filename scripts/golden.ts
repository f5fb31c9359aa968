/**
 * `npm run golden`: regenerates every generated file; with `--check` it only lists the stale ones.
 *
 * Generated files are committed, so that readers find them and changes to them are reviewed like code. One
 * function returns the whole text of each file; this file only knows the paths.
 *
 * The counts of `npm run tidy`'s phrases are lowered here as well. `--check` leaves them out, because a count
 * that could be lower is not an error.
 */
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { generateLink } from "./generate-link.ts";
import { generatePythonErrors, generatePythonMethods, generatePythonTypes } from "./generate-python.ts";
import { generateAdvice, generateSdk } from "./generate-sdk.ts";
import { renderConfiguration } from "./render-configuration.ts";
import { renderEndpoints } from "./render-endpoints.ts";
import { renderStates } from "./render-states.ts";
import { lowerCounts, PHRASES_FILE } from "./tidy/phrases.ts";
import { readTree } from "./tidy/tree.ts";

const root = path.resolve(import.meta.dirname, "..");
const isCheck = process.argv.includes("--check");

const golden = new Map<string, string>([
  ["contract/src/link/generated.ts", generateLink()],
  ["docs/configuration.md", renderConfiguration()],
  ["docs/endpoints.md", renderEndpoints()],
  ["docs/states.md", renderStates()],
  ["sdk-python/flotilla/_methods.py", generatePythonMethods()],
  ["sdk-python/flotilla/errors.py", generatePythonErrors()],
  ["sdk-python/flotilla/types.py", generatePythonTypes()],
  ["sdk/src/advice.ts", generateAdvice()],
  ["sdk/src/generated.ts", generateSdk()],
]);
if (!isCheck) golden.set(PHRASES_FILE, lowerCounts(readTree(root)));
for (const [name, fresh] of golden) {
  const file = path.join(root, name);
  const committed = await readFile(file, "utf8").catch(() => null);
  if (committed === fresh) continue;
  if (isCheck) process.exitCode = 1;
  else await writeFile(file, fresh);
  process.stdout.write(`${name} ${isCheck ? "is stale: run npm run golden and review the change" : "written"}\n`);
}
