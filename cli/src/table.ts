/**
 * Formats text for people: tables, lists of facts, sizes and ages. Pure.
 *
 * Always: text from a server, a guest or another user is cleaned of control characters first, so that it can
 * neither move the cursor nor change other text on the terminal.
 */

/** The text on one line, without control characters. */
export function clean(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression removes them
  return text
    .replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "")
    .replace(/[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+/g, " ");
}

/**
 * As JSON.stringify, but a terminal that prints it obeys nothing in it: what JSON leaves as it is, and
 * `clean` removes, is escaped.
 */
export const jsonText = (value: unknown, indent = 0): string =>
  JSON.stringify(value, null, indent).replace(
    /[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** Rows below their headings, columns two spaces apart, no spaces at line ends. */
export function renderTable(heads: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = columnWidths(
    heads.map((head) => head.length),
    rows,
  );
  return [heads, ...rows].map((row) => renderRow(row, widths));
}

/** As wide as the widest cell of each column, at least `least`. */
export const columnWidths = (least: readonly number[], rows: readonly (readonly string[])[]): readonly number[] =>
  least.map((width, column) => rows.reduce((widest, row) => Math.max(widest, clean(row[column] ?? "").length), width));

export const renderRow = (row: readonly string[], widths: readonly number[]): string =>
  row
    .map((cell, column) => clean(cell).padEnd(widths[column] ?? 0))
    .join("  ")
    .trimEnd();

/** `name  value` lines; facts whose value is null are left out. */
export function renderFacts(facts: readonly (readonly [name: string, value: string | null])[]): string[] {
  const known = facts.filter((fact): fact is readonly [string, string] => fact[1] !== null);
  const width = Math.max(0, ...known.map(([name]) => name.length));
  return known.map(([name, value]) => `${name.padEnd(width)}  ${clean(value)}`.trimEnd());
}

/** The text in lines of at most `width` columns, broken at spaces; a longer word has its own line. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of clean(text).split(/ +/)) {
    const line = lines.at(-1);
    if (line === undefined || line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  return lines;
}

/** Bytes in decimal units with at most one digit after the point. */
export function renderBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Megabytes of memory, in gigabytes where that is a whole number. */
export const renderMemory = (mb: number): string => (mb >= 1024 && mb % 1024 === 0 ? `${mb / 1024} GB` : `${mb} MB`);
