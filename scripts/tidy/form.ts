/**
 * The form of files: heads, sizes, names of files and folders, and comments that switch a check off.
 */
import { type Finding, lineAt, type Tree } from "./tree.ts";

const LINES_MAX = 600;
const TEST_LINES_MAX = 900;
const HEAD_LINES_MIN = 3;
const HEAD_LINES_MAX = 25;

/** Whatever is made by `npm run golden` or belongs to a tool. */
const GENERATED = /(^|\/)generated\.ts$|\.json$|^docs\/(states|configuration)\.md$|\.sql$/;
const BAD_NAMES = /^(utils?|helpers?|common|misc|managers?)(\.|$)/;
const KEBAB = /^\.?[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9-]+)*$/;
/** Names that readers and tools expect in this spelling; migrations are numbered in the database's own spelling. */
const EXPECTED_NAMES =
  /^(README|CONTRIBUTING|AGENTS|GUEST-PROTOCOL|SECURITY|CHANGELOG)\.md$|^LICENSE$|^Makefile$|^\d{4}_[a-z0-9_]+\.sql$/;

/** Heads, sizes and names of every file. */
export function checkForm(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const [path, text] of tree.files) {
    const add = (rule: string, message: string, line = 1) => findings.push({ path, line, rule, message });
    const name = path.split("/").at(-1) ?? "";
    for (const segment of path.split("/"))
      if (BAD_NAMES.test(segment)) add("name", `"${segment}" says nothing: name it after what it holds`);
    if (!KEBAB.test(name) && !EXPECTED_NAMES.test(name)) add("name", `"${name}" is not kebab-case`);
    const lines = text.split("\n").length - 1;
    const max = path.endsWith(".test.ts") ? TEST_LINES_MAX : LINES_MAX;
    if (lines > max && !GENERATED.test(path)) add("size", `${lines} lines, at most ${max}: it is likely two ideas`);
    const headless = headProblem(path, text);
    if (headless !== null) add("head", headless);
  }
  return [...findings, ...checkSwitches(tree)];
}

/** Every source file begins with a comment that says what it is. */
function headProblem(path: string, text: string): string | null {
  const body = text.replace(/^#!.*\n/, "");
  if (path.endsWith(".ts")) {
    const head = /^\/\*[^]*?\*\//.exec(body)?.[0];
    if (head === undefined) return "no module head: begin with a block comment that says what the file is";
    const count = head.split("\n").length;
    if (count < HEAD_LINES_MIN || count > HEAD_LINES_MAX)
      return `a module head of ${count} lines: between ${HEAD_LINES_MIN} and ${HEAD_LINES_MAX}`;
    return null;
  }
  if (/\.[ch]$/.test(path))
    return body.startsWith("/*") ? null : "no head: begin with a comment that says what the file is";
  if (path.endsWith(".sql") && path.includes("/migrations/"))
    return body.startsWith("--") ? null : "no head: begin with a `--` comment that says what the migration does";
  const isShell = path.endsWith(".sh") || /^#!.*sh\b/.test(text);
  return isShell && !body.startsWith("#") ? "no head: begin with a `#` comment that says what the script does" : null;
}

/** Comments that switch a check off carry a reason. */
function checkSwitches(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const source of tree.sources.values()) {
    for (const comment of source.comments) {
      const isOff = /(?:ox|es)lint-disable|biome-ignore|@ts-(?:expect-error|ignore|nocheck)/.exec(comment.text);
      const hasReason = /-- \S|biome-ignore [\w/]+: \S|@ts-expect-error \S/.test(comment.text);
      if (isOff !== null && !hasReason)
        findings.push({
          path: source.path,
          line: lineAt(source.text, comment.start),
          rule: "switched off",
          message: `${isOff[0]} without a reason: add \`-- why\``,
        });
    }
  }
  return findings;
}
