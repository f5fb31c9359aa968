/**
 * Banned TypeScript calls, each with the paths where it is allowed and what to write instead.
 *
 * Always: only code counts, not comments or strings. A line that must break a rule gives its reason, on the
 * line or the one above it: `// tidy-allow <rule>: <reason>`.
 */
import { type Finding, lineAt, type Source, type Tree } from "./tree.ts";

interface Ban {
  readonly rule: string;
  readonly pattern: RegExp;
  /** What to write instead. */
  readonly instead: string;
  /** Paths where it is allowed. */
  readonly allowed: RegExp;
}

/** The only file of each member that uses real time. */
const CLOCKS = /(^|\/)(clock|until)\.ts$/;
/** Tests may measure real durations, but do not wait by the clock. */
const CLOCKS_AND_TESTS = /(^|\/)(clock|until)\.ts$|^test\/|\/test\/|\.test\.ts$/;
/**
 * The files that may read the environment; programs that start others pass their environment on. The launcher
 * sets one variable itself.
 */
const SURROUNDINGS =
  /(^|\/)(main|config)\.ts$|^base\/src\/stop-signals\.ts$|^(scripts|bench|test)\/|\/test\/|\.test\.ts$/;
const NOWHERE = /^$/;

const BANS: readonly Ban[] = [
  {
    rule: "clock",
    pattern: /\bDate\.now\s*\(|\bnew Date\(\s*\)|\bDate\(\s*\)|\bperformance\.now\s*\(|\bhrtime\b/g,
    instead: "use the clock that is passed in (now() or monotonic()), so that a test can set the time",
    allowed: CLOCKS_AND_TESTS,
  },
  {
    rule: "timer",
    pattern: /\b(?:setTimeout|setInterval)\s*\(/g,
    instead: "wait with the clock's sleep(ms, signal), or in tests with until(condition, deadline)",
    allowed: CLOCKS,
  },
  {
    rule: "random",
    pattern: /\bMath\.random\s*\(/g,
    instead: "take randomness from the context (randomBytes) or, in tests, from fast-check",
    allowed: NOWHERE,
  },
  {
    rule: "console",
    pattern: /\bconsole\s*\./g,
    instead:
      "write to the log that is passed in; a program for people writes to process.stdout through its output file",
    allowed: NOWHERE,
  },
  {
    rule: "environment",
    pattern: /\bprocess\.env\b/g,
    instead: "declare a setting in contract/src/settings.ts and read its value from the program's config",
    allowed: SURROUNDINGS,
  },
  {
    rule: "blocking",
    pattern: /\b(?:execSync|execFileSync|spawnSync|readFileSync|writeFileSync|readdirSync|statSync)\s*\(/g,
    instead: "use the asynchronous form: this one blocks every request and every machine of the process",
    allowed: /^(?!(server|node)\/src\/)|(^|\/)(main|config)\.ts$|\.test\.ts$/,
  },
  {
    rule: "sleep in a test",
    pattern: /\bawait\b[^\n;]*\bsleep\s*\(/g,
    instead: "wait for the expected condition: until(condition, deadline)",
    allowed: /^(?!.*\.test\.ts$)/,
  },
  {
    rule: "only",
    pattern: /\b(?:test|it|describe|suite)\.(?:only|todo)\b/g,
    instead: "run one file or use --test-name-pattern; all tests in the repository run",
    allowed: NOWHERE,
  },
  {
    rule: "default export",
    pattern: /^export default\b/gm,
    instead: "export it by its name",
    allowed: NOWHERE,
  },
  {
    rule: "any",
    pattern: /(?:[:<,|&(]|\bas)\s*any\b(?!\s*[:(.])/g,
    instead: "use unknown and narrow it, or the real type",
    allowed: NOWHERE,
  },
];

const TIMER_IMPORT = "node:timers/promises";
const NON_NULL = /[\w)\]]!(?=[.;,)\]}[(:?]|\s*$|\s(?![=]))/gm;

/** Banned calls in every TypeScript file. */
export function checkBanned(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const source of tree.sources.values()) {
    if (source.path.endsWith("/generated.ts")) continue;
    for (const ban of BANS) {
      if (ban.allowed.test(source.path)) continue;
      for (const match of source.code.matchAll(ban.pattern))
        report(findings, source, match.index, ban.rule, `${match[0].trim()} is banned: ${ban.instead}`);
    }
    checkTimerImport(findings, source);
    checkNonNull(findings, source);
  }
  return findings;
}

function checkTimerImport(findings: Finding[], source: Source): void {
  if (CLOCKS.test(source.path)) return;
  for (const edge of source.imports)
    if (edge.specifier === TIMER_IMPORT)
      findings.push({
        path: source.path,
        line: edge.line,
        rule: "timer",
        message: `${TIMER_IMPORT} belongs in the clock file: wait with the clock's sleep(ms, signal)`,
      });
}

/** `value!` needs a comment on its line that says why the value exists. */
function checkNonNull(findings: Finding[], source: Source): void {
  for (const match of source.code.matchAll(NON_NULL)) {
    const line = lineAt(source.code, match.index);
    const hasReason = source.comments.some((comment) => lineAt(source.text, comment.start) === line);
    if (!hasReason)
      report(findings, source, match.index, "non-null", "value! needs its reason as a comment on the line, or a check");
  }
}

function report(findings: Finding[], source: Source, offset: number, rule: string, message: string): void {
  const line = lineAt(source.code, offset);
  if (!isAllowedByComment(source, line, rule)) findings.push({ path: source.path, line, rule, message });
}

function isAllowedByComment(source: Source, line: number, rule: string): boolean {
  return source.comments.some((comment) => {
    const match = /tidy-allow ([a-z -]+): \S/.exec(comment.text);
    const distance = line - lineAt(source.text, comment.start);
    return match?.[1] === rule && (distance === 0 || distance === 1);
  });
}
