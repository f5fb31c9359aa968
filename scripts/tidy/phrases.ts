/**
 * Phrases that docs/words.md advises against. Existing text still has some, so each top-level folder may have
 * as many as `phrases.txt` records, and the recorded count only shrinks.
 *
 * Always:
 * - `npm run golden` lowers recorded counts and never raises one.
 * - A missing line in `phrases.txt` means 0.
 * - Of two lines for one folder and phrase the lower count holds. Git merges the file by keeping the lines of
 *   both sides (.gitattributes), so two branches that lower counts do not conflict.
 */
import type { Finding, Tree } from "./tree.ts";

interface Phrase {
  /** Its name in `phrases.txt`, without spaces. */
  readonly name: string;
  readonly pattern: RegExp;
  readonly instead: string;
}

const PHRASES: readonly Phrase[] = [
  {
    name: "nobody",
    // The Unix user of this name is quoted.
    pattern: /\bnobody\b(?!["`:])/gi,
    instead: "name the missing actor: no client, no reader, unused",
  },
  {
    name: "whoever",
    pattern: /\bwhoever\b/gi,
    instead: "name the actor: the caller, the owner, any client",
  },
  { name: "wish", pattern: /wish/gi, instead: "request, desired state, query" },
  {
    name: "is-told",
    pattern: /\b(?:is|are|was|were|be|been) told\b/gi,
    instead: "receives, is notified, gets a report",
  },
  {
    name: "take-up",
    pattern: /\b(?:take|takes|taken|took|taking) (?:it |them |[a-z]+ )?up\b/gi,
    instead: "adopt (a process), apply (a report), use (space)",
  },
  { name: "go-on", pattern: /\b(?:go|goes|going|gone|went) on\b/gi, instead: "continue" },
  {
    name: "give-up",
    pattern: /\b(?:give|gives|given|gave|giving) (?:it |them )?up\b|giveUp|givenUp/gi,
    instead: "abandon (a change), discard (a VM), cancel (a wait), time out",
  },
  { name: "stand", pattern: /\b(?:stands?|stood)\b/gi, instead: "is, is in, is stored in" },
  { name: "by-which", pattern: /\bby which\b/gi, instead: "two sentences, or with" },
  { name: "in-the-place-of", pattern: /\bin the place of\b/gi, instead: "instead of, replaces" },
  { name: "of-its-own", pattern: /\bof (?:its|their|our) own\b/gi, instead: "its own, separate, dedicated" },
  { name: "wanted", pattern: /\b(?:what|which|that) (?:is|are|was) wanted\b/gi, instead: "desired, requested" },
  { name: "words", pattern: /\bwords\b(?!\.(?:md|ts))/gi, instead: "text, message, terms, arguments" },
  { name: "anew", pattern: /\banew\b|\bafresh\b/gi, instead: "again" },
  { name: "hear", pattern: /\b(?:hear|hears|heard|hearing)\b/gi, instead: "receive, read, was last seen" },
  { name: "mend", pattern: /\bmend(?:s|ed|ing)?\b/gi, instead: "fix, repair" },
  { name: "let", pattern: /\b(?:is|are|be|was|were) let\b|\blets? go\b/gi, instead: "may, is released, is resumed" },
  {
    name: "is-no",
    pattern: /(?<!\bthere )\b(?:is|are) no\b(?! longer| more)/gi,
    instead: "is not a, has no",
  },
];

/** The recorded counts, one line for each folder and phrase: `cli nobody 12`. */
export const PHRASES_FILE = "scripts/tidy/phrases.txt";

/** Generated files, and the places that spell the phrases out. */
const NOT_COUNTED = /^scripts\/tidy(\/|\.test\.ts$)|^docs\/words\.md$|(^|\/)generated\.ts$|\.json$/;
const NOT_COUNTED_DOCS = /^docs\/(states|configuration)\.md$/;

/** A line break inside a comment or a paragraph, with the marks of the comment. */
const BREAK = /[ \t]*\n[ \t]*(?:\*(?!\/)|\/\/|#|--)?[ \t]*/g;

/** One finding for each folder that has more of a phrase than is recorded. */
export function checkPhrases(tree: Tree): Finding[] {
  const recorded = readCounts(tree.files.get(PHRASES_FILE) ?? "");
  const findings: Finding[] = [];
  for (const [key, count] of countPhrases(tree)) {
    const max = recorded.get(key) ?? 0;
    if (count <= max) continue;
    const [folder = "", name = ""] = key.split(" ");
    const instead = PHRASES.find((phrase) => phrase.name === name)?.instead ?? "";
    const message = `${folder}/ has the phrase "${name}" ${count} times, and ${max} are recorded: write instead ${instead} (docs/words.md)`;
    findings.push({ path: folder, line: 1, rule: "phrase", message });
  }
  return findings;
}

/** The text of `phrases.txt` for this tree: each count is the lower of the recorded and the present one. */
export function lowerCounts(tree: Tree): string {
  const recorded = tree.files.get(PHRASES_FILE);
  const present = countPhrases(tree);
  const lines = [...present].flatMap(([key, count]) => {
    const max = recorded === undefined ? count : Math.min(count, readCounts(recorded).get(key) ?? 0);
    return max === 0 ? [] : [`${key} ${max}\n`];
  });
  return lines.toSorted().join("");
}

function readCounts(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [folder, name, count] = line.split(" ");
    if (count === undefined) continue;
    const key = `${folder} ${name}`;
    counts.set(key, Math.min(counts.get(key) ?? Number.POSITIVE_INFINITY, Number(count)));
  }
  return counts;
}

/** `folder phrase` → count; files of the root count as the folder `root`. */
function countPhrases(tree: Tree): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [path, text] of tree.files) {
    if (NOT_COUNTED.test(path) || NOT_COUNTED_DOCS.test(path)) continue;
    const folder = path.includes("/") ? (path.split("/", 1)[0] ?? "") : "root";
    const flat = text.replace(BREAK, " ");
    for (const { name, pattern } of PHRASES) {
      const count = flat.match(pattern)?.length ?? 0;
      if (count > 0) counts.set(`${folder} ${name}`, (counts.get(`${folder} ${name}`) ?? 0) + count);
    }
  }
  return counts;
}
