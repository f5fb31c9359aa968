/**
 * The SQL statements of the server as its source files contain them, found without running anything.
 *
 * Always: every sql`…` of server/src is either a statement, or a fragment that a statement includes by the
 * name of the constant or function that makes it, in the same file or imported from another. A list of
 * columns that the program makes is included by its name too. Any other interpolation becomes a parameter, as
 * in the program; so a fragment that is not recognized makes its statement invalid, and none is skipped
 * silently.
 */
import { readFile } from "node:fs/promises";
import { globSync } from "node:fs";
import path from "node:path";
import * as columns from "../../src/machines/columns.ts";

const SOURCES = path.resolve(import.meta.dirname, "../../src");
const STATEMENT = /^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|LOCK)\b/;
const DECLARATION = /(?:const|function) (\w+)/g;
const IMPORT = /^import \{([^}]*)\} from/gm;

/** Texts that are not in the source: constants of columns.ts. */
const MADE: ReadonlyMap<string, string> = new Map(
  Object.entries(columns).flatMap(([name, value]) => ("text" in value ? [[name, value.text]] : [])),
);

interface Template {
  readonly file: string;
  /** File and line. */
  readonly place: string;
  /** Its declaration: the nearest constant or function before it. */
  readonly name: string;
  /** The texts between the interpolations: one more than these. */
  readonly texts: readonly string[];
  readonly expressions: readonly string[];
  /** What its file imports by name. */
  readonly imports: ReadonlySet<string>;
}

export interface SourceStatement {
  readonly place: string;
  /** With $1, $2, … for its parameters. */
  readonly text: string;
}

/** All statements, and the places of fragments that none of them uses. */
export async function statementsOfServer(): Promise<{
  readonly statements: readonly SourceStatement[];
  readonly unused: readonly string[];
}> {
  const templates = (await Promise.all(sourceFiles().map(templatesOf))).flat();
  const fragments = templates.filter((template) => !isStatement(template));
  const used = new Set<Template>();
  const statements = templates.filter(isStatement).flatMap((template) => {
    const { place } = template;
    const first: Splice = { choice: 0, choices: 1, parameters: 0 };
    const texts = [spliced(template, fragments, used, first)];
    for (let choice = 1; choice < first.choices; choice += 1)
      texts.push(spliced(template, fragments, used, { choice, choices: 1, parameters: 0 }));
    return texts.map((text) => ({ place, text }));
  });
  return { statements, unused: fragments.filter((each) => !used.has(each)).map(({ place }) => place) };
}

const isStatement = ({ texts }: Template): boolean => STATEMENT.test(texts[0] ?? "");

function sourceFiles(): string[] {
  return globSync("**/*.ts", { cwd: SOURCES }).filter(
    (name) => !name.endsWith(".test.ts") && name !== "write-events.ts",
  );
}

/** A function that makes one of several fragments is taken for each of them in turn. */
interface Splice {
  readonly choice: number;
  /** How many there are of the function with the most. */
  choices: number;
  parameters: number;
}

function spliced(template: Template, fragments: readonly Template[], used: Set<Template>, splice: Splice): string {
  let text = template.texts[0] ?? "";
  for (const [index, expression] of template.expressions.entries()) {
    const name = /^(\w+)(?:\(|$)/.exec(expression.trim())?.[1];
    const named = fragments.filter((each) => each.name === name);
    const isImported = name !== undefined && template.imports.has(name);
    const own = named.filter(({ file }) => file === template.file);
    splice.choices = Math.max(splice.choices, own.length);
    const fragment = own[Math.min(splice.choice, own.length - 1)] ?? (isImported ? named[0] : undefined);
    const made = isImported ? MADE.get(name) : undefined;
    if (made !== undefined) {
      text += made;
    } else if (fragment === undefined) {
      splice.parameters += 1;
      text += `$${splice.parameters}`;
    } else {
      used.add(fragment);
      // A constant with SQL that is given to a fragment's function, such as the name of a column.
      for (const given of expression.matchAll(/\b[A-Z_]+\b/g))
        for (const each of fragments) if (each.name === given[0] && each.file === template.file) used.add(each);
      text += spliced(fragment, fragments, used, splice);
    }
    text += template.texts[index + 1] ?? "";
  }
  return text;
}

/** Every sql`…` of a file that is code, not comment. */
async function templatesOf(file: string): Promise<Template[]> {
  const text = await readFile(path.join(SOURCES, file), "utf8");
  const found: Template[] = [];
  const imports = new Set(
    [...text.matchAll(IMPORT)].flatMap(([, names = ""]) => names.split(",").map((each) => each.trim())),
  );
  let end = 0;
  for (const { index } of text.matchAll(/\bsql`/g)) {
    if (index < end) continue;
    const before = text.slice(0, index);
    if (/(?:^|\n)\s*(?:\/?\*|\/\/)[^\n]*$/.test(before)) continue;
    const name = [...before.matchAll(DECLARATION)].at(-1)?.[1] ?? "";
    const place = `server/src/${file}:${before.split("\n").length}`;
    const split = splitTemplate(text, index + "sql`".length, place);
    end = split.end;
    found.push({ file, place, name, imports, texts: split.texts, expressions: split.expressions });
  }
  return found;
}

type Split = Pick<Template, "texts" | "expressions"> & { readonly end: number };

/** The statement that server/src/write-events.ts makes of the rows that it is given. */
const EVENTS_CALL = "insertEvents(sql`";
const EVENTS_HEAD = `INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
  SELECT 'ev', r.tenant_id, r.event::text::jsonb->>'subject', r.subject_id, r.event::text::jsonb->>'type',
    r.event::text::jsonb->'data', r.event::text::jsonb->>'level', r.event::text::jsonb->>'message', r.created_at FROM (`;

/** The parts of the template whose text begins at `start`. */
function splitTemplate(text: string, start: number, place: string): Split {
  const texts: string[] = [];
  let lead = "";
  const expressions: string[] = [];
  let from = start;
  for (let at = start; at < text.length; at++) {
    if (text[at] === "`") return { texts: [...texts, lead + text.slice(from, at)], expressions, end: at };
    if (text.startsWith("${", at)) {
      const end = endOfExpression(text, at + 2);
      const expression = text.slice(at + 2, end);
      if (expression.startsWith(EVENTS_CALL)) {
        const rows = splitTemplate(text, at + 2 + EVENTS_CALL.length, place);
        const [first = "", ...others] = rows.texts;
        const begun = [lead + text.slice(from, at) + EVENTS_HEAD + first, ...others];
        lead = `${begun.pop() ?? ""}) r`;
        texts.push(...begun);
        expressions.push(...rows.expressions);
        at = end;
        from = end + 1;
        continue;
      }
      if (expression.includes("sql`")) throw new Error(`${place}: give the fragment in an interpolation a name`);
      texts.push(lead + text.slice(from, at));
      lead = "";
      expressions.push(expression);
      at = end;
      from = end + 1;
    }
  }
  throw new Error(`${place}: the statement has no end`);
}

/** The position of the brace that closes an interpolation. */
function endOfExpression(text: string, start: number): number {
  let depth = 1;
  let at = start;
  for (; depth > 0; at++) {
    if (text[at] === "{") depth += 1;
    if (text[at] === "}") depth -= 1;
  }
  return at - 1;
}
