/**
 * Separates code from comments and strings in TypeScript, for rules that search in one of them.
 *
 * Always: `code` has the length and the lines of the text, so offsets are the same in both. Quotes and the
 * code inside `${}` are kept; the content of strings, templates, regular expressions and comments becomes
 * spaces.
 *
 * Whether a slash begins a regular expression is guessed from the token before it, as every small tokenizer
 * does. A regular expression directly after `)` or `}` is read as a division; the formatter's output has
 * none.
 */

export interface Comment {
  /** Offset of its first character in the text. */
  readonly start: number;
  /** Including its slashes and stars. */
  readonly text: string;
}

const TOKEN =
  /\/\/[^\n]*|\/\*[^]*?\*\/|"(?:[^"\\\n]|\\[^])*"|'(?:[^'\\\n]|\\[^])*'|[A-Za-z_$#][\w$]*|\d[\w.]*|\s+|[^]/gy;
const TEMPLATE_TEXT = /(?:[^`\\$]|\\[^]|\$(?!\{))*/y;
const REGULAR_EXPRESSION = /\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
const WORDS_BEFORE_EXPRESSION = new Set(
  "return typeof case in of delete void instanceof new throw yield await do else".split(" "),
);

/** Splits the text of a TypeScript file into code and comments. */
export function maskSource(text: string): { readonly code: string; readonly comments: readonly Comment[] } {
  const pieces: string[] = [];
  const comments: Comment[] = [];
  /** Number of open braces in each open template, inside its `${`. */
  const templates: number[] = [];
  let previous = "";
  let at = 0;

  const readTemplateText = () => {
    TEMPLATE_TEXT.lastIndex = at;
    const inside = TEMPLATE_TEXT.exec(text)?.[0] ?? "";
    pieces.push(blank(inside));
    at += inside.length;
    if (text.startsWith("${", at)) {
      pieces.push("${");
      at += 2;
      templates.push(0);
      previous = "{";
    } else {
      pieces.push(text.slice(at, at + 1));
      at += 1;
      previous = "`";
    }
  };

  while (at < text.length) {
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(text)?.[0] ?? text.charAt(at);
    const isRegularExpression = token === "/" && mayBeginExpression(previous);
    if (token.startsWith("//") || token.startsWith("/*")) {
      comments.push({ start: at, text: token });
      pieces.push(blank(token));
      at += token.length;
    } else if (isRegularExpression) {
      REGULAR_EXPRESSION.lastIndex = at;
      const literal = REGULAR_EXPRESSION.exec(text)?.[0] ?? token;
      pieces.push(blank(literal));
      at += literal.length;
      previous = "/x/";
    } else if (token === "`") {
      pieces.push(token);
      at += 1;
      readTemplateText();
    } else if (token === "}" && templates.at(-1) === 0) {
      templates.pop();
      pieces.push(token);
      at += 1;
      readTemplateText();
    } else {
      const isString = (token.startsWith('"') || token.startsWith("'")) && token.length > 1;
      pieces.push(isString ? token.charAt(0) + blank(token.slice(1, -1)) + token.charAt(0) : token);
      const depth = templates.at(-1);
      if (depth !== undefined && token === "{") templates[templates.length - 1] = depth + 1;
      if (depth !== undefined && token === "}") templates[templates.length - 1] = depth - 1;
      if (token.trim() !== "") previous = token;
      at += token.length;
    }
  }
  return { code: pieces.join(""), comments };
}

function mayBeginExpression(previous: string): boolean {
  return WORDS_BEFORE_EXPRESSION.has(previous) || !/[\w$)\]}"'`/]$/.test(previous);
}

function blank(text: string): string {
  return text.replace(/[^\n]/g, " ");
}
