/**
 * Rows as CSV (RFC 4180, with line feeds). Pure.
 *
 * Always: a text cell that a spreadsheet would run as a formula begins with an apostrophe.
 */

/** Without a line feed after the last row. */
export const renderCsv = (columns: readonly string[], rows: readonly (readonly string[])[]): string =>
  [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n");

function cell(text: string): string {
  const isNumber = /^-?\d+(\.\d+)?$/.test(text);
  const safe = !isNumber && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
