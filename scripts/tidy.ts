/**
 * `npm run tidy`: the project rules that no compiler, formatter or linter knows, checked over the whole tree.
 *
 * Each rule is a pure function from the tree to findings (scripts/tidy/*.ts) and has a test that shows it
 * failing. oxlint checks the rest (`.oxlintrc.json`): floating promises, size of functions, import cycles.
 *
 * Runs in under three seconds: it reads every file once and starts only git.
 */
import path from "node:path";
import { checkBanned } from "./tidy/banned.ts";
import { checkComments } from "./tidy/comments.ts";
import { checkCycles } from "./tidy/cycles.ts";
import { checkDead } from "./tidy/dead.ts";
import { checkDependencies, checkDirections } from "./tidy/directions.ts";
import { checkFamilies } from "./tidy/families.ts";
import { checkForm } from "./tidy/form.ts";
import { checkPhrases } from "./tidy/phrases.ts";
import { checkRoles } from "./tidy/roles.ts";
import { checkRooms } from "./tidy/rooms.ts";
import { readTree } from "./tidy/tree.ts";
import { checkWords } from "./tidy/words.ts";

const RULES = [
  checkDirections,
  checkDependencies,
  checkRooms,
  checkFamilies,
  checkCycles,
  checkRoles,
  checkBanned,
  checkForm,
  checkWords,
  checkPhrases,
  checkComments,
  checkDead,
];

const tree = readTree(path.resolve(import.meta.dirname, ".."));
const findings = RULES.flatMap((rule) => rule(tree)).toSorted(
  (one, other) => one.path.localeCompare(other.path) || one.line - other.line,
);
for (const { path: file, line, rule, message } of findings)
  process.stdout.write(`${file}:${line} ${rule}: ${message}\n`);
process.stdout.write(`tidy: ${tree.files.size} files, ${findings.length} findings\n`);
process.exitCode = findings.length === 0 ? 0 : 1;
