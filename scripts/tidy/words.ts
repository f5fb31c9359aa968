/**
 * Strings that must not be in the repository: leftovers of unfinished work, and traces of the machine or the
 * way it was written on. A reader sees the program, not its making.
 */
import { type Finding, lineAt, type Tree } from "./tree.ts";

interface Word {
  readonly rule: string;
  readonly pattern: RegExp;
  readonly instead: string;
  /** Paths that may contain it. */
  readonly allowed?: RegExp;
}

const WORDS: readonly Word[] = [
  { rule: "unfinished", pattern: /\bFIXME\b|\bXXX\b/g, instead: "fix it, or make it a TODO(topic)" },
  { rule: "unfinished", pattern: /\bTODO\b(?!\([a-z-]+\): \S)/g, instead: "write TODO(topic): what is missing" },
  {
    rule: "machine path",
    pattern: /(?<![\w.}~$>-])\/(?:work|farm|Users)\/[\w.-]|(?<![\w.}~$"'`/-])\/root\/[\w.-]/g,
    instead: "a path of one machine: derive it from the checkout, a setting or a temporary directory",
  },
  {
    rule: "machine path",
    pattern: /(?<![\w.}~$>-])\/home\/[a-z]+\/[\w.-]/g,
    instead: "a path of one machine: derive it from the checkout, a setting or a temporary directory",
    // Images and guests in tests have homes.
    allowed: /\.test\.ts$|(^|\/)test\//,
  },
  {
    rule: "registry host",
    pattern: /\b(?:registry\.npmjs|deb\.debian|archive\.ubuntu|security\.debian|pypi)\.org\b|\bcrates\.io\b/g,
    instead: "name the package, not the registry it comes from",
  },
  {
    rule: "trace",
    pattern: /\b(?:issue|ticket) #?\d+\b|\bco-authored-by\b|\bgenerated (?:by|with) (?:an? )?(?:AI|LLM)\b/gi,
    instead: "state the reason itself: readers cannot open the discussion",
  },
  {
    rule: "trace",
    pattern: /\b(?:A[I](?! SDK)|L[L]M|G[P]T|Chat[G]PT|Cl[a]ude|Anthr[o]pic|Open[A]I|Cop[i]lot|Cod[e]x)\b/g,
    instead: "do not name the author or the tool",
  },
];

/** The rules themselves and their tests contain the strings. */
const RULES = /^scripts\/tidy(\/|\.test\.ts$)/;

/** Banned strings in all files. */
export function checkWords(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const [path, text] of tree.files) {
    if (RULES.test(path)) continue;
    for (const word of WORDS.filter(({ allowed }) => !allowed?.test(path)))
      for (const match of text.matchAll(word.pattern))
        findings.push({
          path,
          line: lineAt(text, match.index),
          rule: word.rule,
          message: `"${match[0]}": ${word.instead}`,
        });
  }
  return findings;
}
